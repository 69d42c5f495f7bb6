//! Micro-batches: planning, threads and the check of the resulting vectors, shared by [`super::builtin`] and
//! [`super::fastembed`].
//!
//! A model pads every text of a batch to the longest one. Batches therefore hold texts of similar length, and are
//! limited by cost (`rows × longest` tokens) rather than by number of texts. A limit of one token puts every text
//! into a separate batch.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Groups texts by length into batches that cost at most `max_batch_tokens` each.
///
/// `lengths` has the tokens of each text; the result has the positions of the texts in each batch. The longest come
/// first, so that threads sharing the batches finish at about the same time. A text above the limit gets a batch to
/// itself.
pub(super) fn plan(lengths: &[usize], max_batch_tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&position| std::cmp::Reverse(lengths[position]));

    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut longest = 0;
    for position in order {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * longest <= max_batch_tokens => batch.push(position),
            _ => {
                // With a cost of 0, a batch of empty texts would have no limit.
                longest = lengths[position].max(1);
                batches.push(vec![position]);
            }
        }
    }
    batches
}

/// Calls `work(worker, job)` for every job in `0..jobs` and returns the results in the order of the jobs.
///
/// Runs up to `workers` threads, each of which takes the next job when it is free; `worker` is the thread's index.
/// After the first error no further job is started.
pub(super) fn spread<T, E, F>(workers: usize, jobs: usize, work: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: Send,
    F: Fn(usize, usize) -> Result<T, E> + Sync,
{
    let workers = workers.min(jobs);
    if workers <= 1 {
        return (0..jobs).map(|job| work(0, job)).collect();
    }
    let next = AtomicUsize::new(0);
    let take_jobs = |worker: usize| -> Result<Vec<(usize, T)>, E> {
        let mut done = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return Ok(done);
            }
            match work(worker, job) {
                Ok(result) => done.push((job, result)),
                Err(error) => {
                    next.store(jobs, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let mut done = thread::scope(|scope| {
        let take_jobs = &take_jobs;
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || take_jobs(worker))).collect();
        let mut done = Vec::with_capacity(jobs);
        for thread in threads {
            // A panic in a job is propagated to the caller, as it would be without threads.
            done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(done)
    })?;
    done.sort_unstable_by_key(|&(job, _)| job);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Scales a vector to length one. Returns `None` if it is zero or not finite: such a vector would silently distort
/// the ranking.
pub(super) fn normalised(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if !length.is_normal() {
        return None;
    }
    for x in &mut vector {
        *x /= length;
    }
    Some(vector)
}

/// Returns the mean of vectors, scaled to length one; `None` as for [`normalised`], and without vectors.
pub(super) fn direction<'a>(vectors: impl Iterator<Item = &'a [f32]>) -> Option<Vec<f32>> {
    // The sum has the direction of the mean, and the length is normalised anyway.
    let add = |mut sum: Vec<f32>, own: &[f32]| {
        sum.resize(own.len(), 0.0);
        sum.iter_mut().zip(own).for_each(|(total, x)| *total += x);
        sum
    };
    normalised(vectors.fold(Vec::new(), add))
}

/// Returns the vectors of planned batches in the order of the texts.
pub(super) fn in_input_order(plan: &[Vec<usize>], vectors: impl IntoIterator<Item = Vec<f32>>) -> Vec<Vec<f32>> {
    let count = plan.iter().map(Vec::len).sum();
    let mut ordered = vec![Vec::new(); count];
    for (&position, vector) in plan.iter().flatten().zip(vectors) {
        ordered[position] = vector;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_in_one_batch_and_no_batch_costs_more_than_the_limit() {
        let lengths: Vec<usize> = (0..500).map(|i| 3 + (i * 7919) % 254).collect();
        let plan = plan(&lengths, 2048);

        let mut seen: Vec<usize> = plan.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
        for batch in &plan {
            let longest = batch.iter().map(|&i| lengths[i]).max().unwrap();
            assert!(batch.len() * longest <= 2048);
        }
    }

    #[test]
    fn texts_of_like_length_go_together() {
        assert_eq!(plan(&[10, 200, 11, 199], 400), [vec![1, 3], vec![2, 0]]);
    }

    #[test]
    fn a_text_above_the_limit_gets_a_batch_to_itself() {
        assert_eq!(plan(&[5000, 10], 1000), [vec![0], vec![1]]);
        assert_eq!(plan(&[0, 0], 1000), [vec![0, 1]]);
        assert!(plan(&[], 1000).is_empty());
    }

    #[test]
    fn vectors_come_back_in_the_order_of_the_texts() {
        let plan = [vec![2, 0], vec![1]];
        let vectors = [vec![2.0], vec![0.0], vec![1.0]];
        assert_eq!(in_input_order(&plan, vectors), [vec![0.0], vec![1.0], vec![2.0]]);
    }

    #[test]
    fn a_vector_without_direction_is_refused() {
        assert_eq!(normalised(vec![3.0, 4.0]).unwrap(), [0.6, 0.8]);
        for bad in [vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0], vec![]] {
            assert_eq!(normalised(bad), None);
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_jobs_whichever_thread_ran_them() {
        for workers in [0, 1, 3, 64] {
            let results: Result<Vec<usize>, ()> = spread(workers, 20, |worker, job| {
                assert!(worker < workers.max(1));
                Ok(job * 2)
            });
            assert_eq!(results.unwrap(), (0..20).map(|job| job * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_job_is_started_after_a_failure() {
        let started = AtomicUsize::new(0);
        let result: Result<Vec<()>, &str> = spread(2, 10_000, |_, _| {
            started.fetch_add(1, Ordering::Relaxed);
            Err("broken")
        });
        assert_eq!(result, Err("broken"));
        assert!(started.into_inner() <= 2);
    }
}
