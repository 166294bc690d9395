"""Training steps that are timed."""
import resource
import statistics
import time


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
