/* Opens the database driver's plugin, once. */
#include "io/database.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

static int find_driver(const struct ah_database_driver **out)
{
    static const struct ah_database_driver *driver;
    void *symbol = NULL;
    if (!driver) {
        int status = ah_plugin_open("sqlite", "ah_database_plugin", &symbol);
        if (status < 0)
            return ah_fail_prefix(status,
                                  "studies are kept by SQLite (Debian: libsqlite3-0; to build: libsqlite3-dev)");
        const struct ah_database_driver *found = symbol;
        if (found->abi != AH_DATABASE_ABI)
            return ah_fail(AH_EINVAL, "accelhost-sqlite.so has interface %u, this program %d: build both again",
                           found->abi, AH_DATABASE_ABI);
        driver = found;
    }
    *out = driver;
    return 0;
}

int ah_database_open(struct ah_database **out, const char *path, enum ah_database_mode mode)
{
    const struct ah_database_driver *driver = NULL;
    AH_TRY(find_driver(&driver));
    AH_TRY(driver->open(out, path, mode));
    (*out)->driver = driver;
    return 0;
}

void ah_database_close(struct ah_database *database)
{
    if (database)
        database->driver->close(database);
}
