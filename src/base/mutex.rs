//! Mutexes that outlive a panic of their holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a holder has panicked: the panic ended its task, and the others continue.
///
/// Use only for a value that is consistent between any two statements of each holder, since a panic can occur there.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
