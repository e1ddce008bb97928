//! Enums whose values have a number and a name.

/// Declares an enum from one table of its values, numbers and names. `code` and `name` return the
/// columns, `ALL` has the values in the table's order, and `Display` writes the name.
macro_rules! value_table {
    (
        $(#[$of_type:meta])*
        pub enum $type:ident {
            $( $(#[$of_value:meta])* $value:ident = $code:literal, $name:literal; )+
        }
        $(#[$of_code:meta])* code;
        $(#[$of_name:meta])* name;
    ) => {
        $(#[$of_type])*
        pub enum $type {
            $( $(#[$of_value])* $value = $code, )+
        }

        impl $type {
            /// All values, in the order of their numbers.
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

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use value_table;
