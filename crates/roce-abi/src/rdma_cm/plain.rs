//! Structures as bytes.

/// A value that has a fixed number of bytes, each of which has a meaning: integers, arrays of them,
/// and structures of them without gaps.
pub trait Plain: Sized {
    /// Reads the value from its bytes. Bytes that are missing are zeros.
    fn read(bytes: &[u8]) -> Self;

    /// Writes the bytes to the front of `out`; what does not fit is left out.
    fn write(&self, out: &mut [u8]);

    /// Returns the bytes.
    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Self>()];
        self.write(&mut bytes);
        bytes
    }
}

impl<const N: usize> Plain for [u8; N] {
    fn read(bytes: &[u8]) -> Self {
        let mut value = [0; N];
        copy(bytes, &mut value);
        value
    }

    fn write(&self, out: &mut [u8]) {
        copy(self, out);
    }
}

/// Copies as many bytes as both have.
fn copy(from: &[u8], to: &mut [u8]) {
    let common = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..common), to.get_mut(..common)) {
        to.copy_from_slice(from);
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Plain for $integer {
            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(Plain::read(bytes))
            }

            fn write(&self, out: &mut [u8]) {
                self.to_ne_bytes().write(out);
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

/// Returns what begins at an offset.
pub(super) fn behind(bytes: &[u8], offset: usize) -> &[u8] {
    bytes.get(offset..).unwrap_or_default()
}

/// Returns what begins at an offset, to be written.
pub(super) fn behind_mut(bytes: &mut [u8], offset: usize) -> &mut [u8] {
    bytes.get_mut(offset..).unwrap_or_default()
}

/// Implements [`Plain`] for structures, of which all fields are named; the size is checked, and
/// that there are no gaps.
macro_rules! plain {
    ($( $name:ident: $size:literal { $($field:ident: $type:ty),* $(,)? } )*) => {$(
        impl $crate::rdma_cm::Plain for $name {
            fn read(bytes: &[u8]) -> Self {
                use $crate::rdma_cm::plain::behind;
                Self { $( $field: <$type>::read(behind(bytes, std::mem::offset_of!($name, $field))) ),* }
            }

            fn write(&self, out: &mut [u8]) {
                use $crate::rdma_cm::plain::behind_mut;
                $( self.$field.write(behind_mut(out, std::mem::offset_of!($name, $field))); )*
            }
        }

        const _: () = assert!(size_of::<$name>() == $size);
        const _: () = assert!(0 $( + size_of::<$type>() )* == $size);
    )*};
}

/// Defines structures that are [`Plain`], with their sizes.
macro_rules! structures {
    ($( $(#[$attribute:meta])* $name:ident: $size:literal {
        $( $(#[$of_field:meta])* $field:ident: $type:ty ),* $(,)?
    } )*) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name { $( $(#[$of_field])* pub $field: $type ),* }

            impl Default for $name {
                fn default() -> Self {
                    $crate::rdma_cm::Plain::read(&[])
                }
            }
        )*
        $crate::rdma_cm::plain::plain! { $( $name: $size { $($field: $type),* } )* }
    };
}

pub(super) use {plain, structures};
