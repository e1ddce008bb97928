//! Enums whose values have a code in messages and a name: as `value_table` in roce-transport, on which this crate does
//! not depend.

/// Defines such an enum, its list of all values, and its text. Codes count from 0.
macro_rules! named_values {
    (
        $(#[$of_type:meta])*
        pub enum $type:ident {
            $( $(#[$of_value:meta])* $value:ident = $code:literal, $name:literal; )+
        }
        $(#[$of_code:meta])* code;
        $(#[$of_name:meta])* name;
    ) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $( $(#[$of_value])* $value = $code, )+
        }

        impl $type {
            /// All values, in the order of their codes.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$value),+];

            $(#[$of_code])*
            pub const fn code(self) -> u8 {
                self as u8
            }

            $(#[$of_name])*
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$value => $name, )+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use named_values;
