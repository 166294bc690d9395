/* Status codes and the thread-local error text.
 *
 * A C function that can fail returns 0 or a negative AH_E* code and leaves one line of text, written for the user,
 * in a thread-local buffer. Library code never prints, aborts or exits. A helper thread hands its text over with
 * ah_error_text() at the wait; nothing else crosses threads. */
#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum ah_status {
    AH_OK = 0,
    AH_EINVAL = -1,    /* an argument is wrong: shape, dtype, range, option */
    AH_ENOMEM = -2,    /* out of memory */
    AH_EIO = -3,       /* a file or device failed, or its bytes do not conform to the format */
    AH_EPEER = -4,     /* a peer process died, ended or failed */
    AH_ETIMEOUT = -5,  /* a collective or wait timed out */
    AH_EMISMATCH = -6, /* ranks issued different collectives */
    AH_ESTATE = -7,    /* the call is right but not now (freed tensor, second backward, ...) */
    AH_EINTR = -8,     /* interrupted by a signal */
    AH_ENOTIMPL = -9,  /* known, but no kernel or rule for this case; the text names it */
    AH_ELUA = -10,     /* a Lua callback raised; its error value is on top of the Lua stack */
};

/* Record the text for a failure and return `code`, so that `return ah_fail(AH_EINVAL, ...)` reads as one step. The text
 * is made printable (base/status/printable.h): arguments may be names from files. */
int ah_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int ah_vfail(int code, const char *format, va_list args);

/* Prepend "prefix: " to the current text (for example the name of the file being read); returns `code`. */
int ah_fail_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of this thread's last failure; never NULL, "" before the first. */
const char *ah_error_text(void);

/* Prefix the error text with `name` if it is a bare out-of-memory text; returns the code. */
int ah_fail_named(int code, const char *name);

#define AH_TRY(expr)                      \
    do {                                  \
        int ah_try_status = (expr);       \
        if (ah_try_status < 0)            \
            return ah_try_status;         \
    } while (0)

/* Return an error of this text where memory was not allocated. */
#define AH_TRY_MEMORY(pointer, text)              \
    do {                                          \
        if (!(pointer))                           \
            return ah_fail(AH_ENOMEM, text);      \
    } while (0)

/* For functions with one cleanup label; needs a local `int status`. */
#define AH_TRYGO(expr, label)             \
    do {                                  \
        status = (expr);                  \
        if (status < 0)                   \
            goto label;                   \
    } while (0)

/* Before a declaration: call `function` with the address of each variable at the end of the block, however that is left
 * but by a Lua error. */
#define AH_CLEANUP(function) __attribute__((cleanup(function)))
/* The same for pointers that are freed; NULL is ignored. */
#define AH_FREED AH_CLEANUP(ah_free_owned)
static inline void ah_free_owned(void *variable)
{
    void *memory;
    memcpy(&memory, variable, sizeof memory);
    free(memory);
}

/* Hold a mutex up to the end of the block; one a block. */
#define AH_LOCK_SCOPE(mutex) \
    pthread_mutex_t *ah_locked __attribute__((cleanup(ah_unlock_owned), unused)) = ah_lock(mutex)
static inline pthread_mutex_t *ah_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}
static inline void ah_unlock_owned(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}
