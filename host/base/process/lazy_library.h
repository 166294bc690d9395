/* Libraries of the system that are loaded by the first call of one of their functions: OpenBLAS and oneDNN, without
 * which a process starts in 0.4 of the time (host/decisions.md); many processes compute no product. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

/* A library and its functions: `symbols` are their names, `calls` their addresses, valid once `is_open` is set. The
 * store of `is_open` releases `calls`, and its loads acquire them; under the loader's lock they are relaxed. */
struct ah_lazy_library {
    const char *name, *file; /* "OpenBLAS", "libopenblas.so.0" */
    const char *const *symbols;
    void **calls;
    int count;
    atomic_bool is_open;
};

/* Is this thread loading a library, so that its constructors run? */
bool ah_lazy_is_loading(void);

/* Load the library and set `calls`. Any thread may call. AH_EIO: the file or one of the functions is missing. */
int ah_lazy_load(struct ah_lazy_library *library);

static inline int ah_lazy_open(struct ah_lazy_library *library)
{
    return atomic_load_explicit(&library->is_open, memory_order_acquire) ? 0 : ah_lazy_load(library);
}
