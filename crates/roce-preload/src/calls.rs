//! The interposed calls.

mod channel;
mod directory;
mod file;
mod glob;
mod metadata;
mod resolve;
mod signal;

/// Defines functions of the C library that pass on a path of the view in place of the program's.
///
/// `[a: T]` are the parameters before the path, which starts at the folder `in`; `(a: T)` are those
/// behind it; the value behind `or` is returned where the C library lacks the function.
macro_rules! interpose {
    ($(
        fn $name:ident [$($before:ident: $before_type:ty),*] in $folder:expr,
        ($($after:ident: $after_type:ty),*) -> $result:ty, or $failed:expr;
    )*) => {$(
        /// As in the C library, with paths of the view.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($before: $before_type,)*
            path: *const std::ffi::c_char,
            $($after: $after_type),*
        ) -> $result {
            type Function = unsafe extern "C" fn(
                $($before_type,)*
                *const std::ffi::c_char,
                $($after_type),*
            ) -> $result;
            let Some(next) = $crate::calls::next_function!($name, Function) else {
                $crate::view::set_errno(libc::ENOSYS);
                return $failed;
            };
            let mut buffer = $crate::view::PathBuffer::new();
            // SAFETY: the caller promises what the C library's function requires of its arguments,
            // and the path that replaces theirs lives until the end of the call.
            unsafe { next($($before,)* buffer.serve($folder, path), $($after),*) }
        }
    )*};
}

/// Returns the C library's function of a name, as a pointer of a type.
macro_rules! next_function {
    ($name:ident, $type:ty) => {{
        const NAME: &str = concat!(stringify!($name), "\0");
        static NEXT: $crate::next::Next =
            $crate::next::Next::new(match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no zero"),
            });
        let address = NEXT.address();
        // SAFETY: null is the niche of `Option`. The C library's function of this name has this
        // type; variadic ones are called alike on x86-64 and arm64.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<$type>>(address) }
    }};
}

use interpose;
use next_function;
