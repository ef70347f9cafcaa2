//! Atomics whose every operation is a scheduling point.
//!
//! The one idea: the schedule explores who goes first; all orderings are as strong as SeqCst here,
//! so what relies on the weaker ones is tested on real hardware only.

use crate::sim::point;
pub use std::sync::atomic::{Ordering, fence};

macro_rules! common {
    ($name:ident, $value:ty) => {
        /// As in `std`.
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(missing_docs)] // as in std
        impl $name {
            pub const fn new(value: $value) -> $name {
                $name(std::sync::atomic::$name::new(value))
            }
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                point();
                self.0.fetch_update(set, fetch, f)
            }
            common!(@ops $value, fetch_and fetch_or fetch_xor);
        }

        impl From<$value> for $name {
            fn from(value: $value) -> $name {
                $name::new(value)
            }
        }
    };
    (@ops $value:ty, $($op:ident)*) => {
        $(pub fn $op(&self, value: $value, order: Ordering) -> $value {
            point();
            self.0.$op(value, order)
        })*
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        common!($name, $value);
        #[allow(missing_docs)] // as in std
        impl $name {
            common!(@ops $value, fetch_add fetch_sub fetch_max fetch_min);
        }
    };
}

common!(AtomicBool, bool);
number!(AtomicU8, u8);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
number!(AtomicI64, i64);
