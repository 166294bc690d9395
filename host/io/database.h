/* Databases of one file, as the plugin accelhost-sqlite.so keeps them: SQLite's. It exports its
 * `struct ah_database_driver` as `ah_database_plugin` and is opened with the first database.
 *
 *     AH_TRY(ah_database_open(&database, path, AH_DATABASE_CREATE));
 *     AH_TRY(count = database->driver->prepare(database, sql));       its parameters, which are bound from 0
 *     while ((status = database->driver->step(database)) > 0) ...     columns of one row, from 0
 *     ah_database_close(database);
 *
 * A database runs one statement at a time; texts of rows live until the next step. Errors are AH_EINVAL (the statement)
 * or AH_EIO (the file) and quote the statement. Other processes may read and write the file at the same time; a
 * statement waits up to ten seconds for their locks. A database belongs to one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ah_database_kind { AH_DATABASE_NULL, AH_DATABASE_INTEGER, AH_DATABASE_REAL, AH_DATABASE_TEXT };

struct ah_database_value {
    enum ah_database_kind kind;
    int64_t integer;
    double real;
    const char *text; /* bytes that may hold anything */
    size_t bytes;
};

enum ah_database_mode { AH_DATABASE_READ, AH_DATABASE_WRITE, AH_DATABASE_CREATE };

enum { AH_DATABASE_ABI = 1 };

struct ah_database {
    const struct ah_database_driver *driver;
};

struct ah_database_driver {
    unsigned abi; /* AH_DATABASE_ABI of the headers that the plugin was built with */
    const char *(*version)(void);
    int (*open)(struct ah_database **out, const char *path, enum ah_database_mode mode);
    void (*close)(struct ah_database *database);
    /* Make a statement the current one; return its number of parameters. It is kept, for the next time. */
    int (*prepare)(struct ah_database *database, const char *sql);
    /* The name of a parameter without its mark; NULL: it has none. */
    const char *(*parameter)(struct ah_database *database, int at);
    int (*bind)(struct ah_database *database, int at, const struct ah_database_value *value);
    /* 1: a row is there; 0: that was the last. */
    int (*step)(struct ah_database *database);
    int (*columns)(struct ah_database *database);
    const char *(*name)(struct ah_database *database, int column);
    void (*value)(struct ah_database *database, int column, struct ah_database_value *out);
};

/* Open a database file. AH_EINVAL: the plugin is not installed; AH_EIO: the text names the file. */
int ah_database_open(struct ah_database **out, const char *path, enum ah_database_mode mode);
/* Also with NULL. */
void ah_database_close(struct ah_database *database);
