//! Mutexes that outlive a panic of their holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a holder has panicked: the panic ended its task, and the others go on.
///
/// Only for a value that is consistent between any two statements of each holder, since a panic can come there.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
