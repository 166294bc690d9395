/* Opens the database driver's plugin, once. */
#include "io/database.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

int ah_database_open(struct ah_database **out, const char *path, enum ah_database_mode mode)
{
    static const void *found;
    AH_TRY(ah_plugin_open("sqlite", "ah_database_plugin", AH_DATABASE_ABI,
                          "studies are kept by SQLite (Debian: libsqlite3-0; to build: libsqlite3-dev)", &found));
    const struct ah_database_driver *driver = found;
    AH_TRY(driver->open(out, path, mode));
    (*out)->driver = driver;
    return 0;
}

void ah_database_close(struct ah_database *database)
{
    if (database)
        database->driver->close(database);
}
