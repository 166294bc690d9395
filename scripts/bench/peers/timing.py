"""Training steps that are timed."""
import resource
import statistics
import time

from best import compiled_if_faster


def steps(count, step):
    """The medians of a step's processor time and elapsed time in ms, of `count` steps after one that does not count."""
    busy, elapsed = [], []
    for i in range(count + 1):
        begin, start = time.process_time(), time.perf_counter()
        step()
        if i > 0:
            busy.append(time.process_time() - begin)
            elapsed.append(time.perf_counter() - start)
    return 1e3 * statistics.median(busy), 1e3 * statistics.median(elapsed)


def show(busy, elapsed):
    """Print the two times."""
    print("step_ms", busy)
    print("step_elapsed_ms", elapsed)


def show_peak():
    """Print the peak of the resident memory in MiB."""
    print("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def show_best(model, step, count):
    """Print the times of step(model), compiled if that is faster, and the peak of the memory before that."""
    times = steps(count, lambda: step(model))
    show_peak()
    compiled = compiled_if_faster(model, step, rounds=2)
    show(*(times if compiled is model else steps(count, lambda: step(compiled))))
