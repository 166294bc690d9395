/* The plugin that keeps databases, by SQLite: its exports. Statements are kept prepared, the oldest is dropped when
 * there are too many; the current one is reset before the next, and when it has been read, so that no read stays open.
 * Files may be other people's: statements cannot write the schema's table, and views and triggers of a file call no
 * function with side effects. */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/database.h"

enum { KEPT = 48, WAIT_MS = 10000 };

struct kept {
    sqlite3_stmt *statement;
    uint64_t used;
};

struct store {
    struct ah_database database;
    sqlite3 *file;
    sqlite3_stmt *current;
    struct kept kept[KEPT];
    uint64_t clock;
};

static struct store *store_of(struct ah_database *database)
{
    return (struct store *)database;
}

static const char *sqlite_version(void)
{
    return sqlite3_libversion();
}

static void close_store(struct ah_database *database)
{
    struct store *store = store_of(database);
    for (int i = 0; i < KEPT; i++)
        sqlite3_finalize(store->kept[i].statement);
    sqlite3_close(store->file);
    free(store);
}

static int open_store(struct ah_database **out, const char *path, enum ah_database_mode mode)
{
    static const int flags[] = {
        SQLITE_OPEN_READONLY, SQLITE_OPEN_READWRITE, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
    };
    struct store *store = calloc(1, sizeof *store);
    AH_TRY_MEMORY(store, "out of memory");
    int code = sqlite3_open_v2(path, &store->file, flags[mode] | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        int status = ah_fail(code == SQLITE_NOMEM ? AH_ENOMEM : AH_EIO, "'%s': %s", path,
                             store->file ? sqlite3_errmsg(store->file) : sqlite3_errstr(code));
        close_store(&store->database);
        return status;
    }
    sqlite3_db_config(store->file, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store->file, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_busy_timeout(store->file, WAIT_MS);
    sqlite3_extended_result_codes(store->file, 1);
    *out = &store->database;
    return 0;
}

static int plugin_fail(struct store *store, const char *sql)
{
    int code = sqlite3_extended_errcode(store->file) & 0xff;
    int status = code == SQLITE_NOMEM ? AH_ENOMEM :
                 code == SQLITE_ERROR || code == SQLITE_CONSTRAINT || code == SQLITE_RANGE ||
                 code == SQLITE_MISMATCH ? AH_EINVAL : AH_EIO;
    const char *file = sqlite3_db_filename(store->file, NULL);
    if (status != AH_EINVAL) /* a full disk, a damaged file: the statement is not the cause */
        return ah_fail(status, "'%s': %s", file ? file : "", sqlite3_errmsg(store->file));
    return ah_fail(status, "'%s': %s (in \"%.200s\")", file ? file : "", sqlite3_errmsg(store->file), sql);
}

static void plugin_reset(struct store *store)
{
    if (store->current) {
        sqlite3_reset(store->current);
        sqlite3_clear_bindings(store->current);
    }
    store->current = NULL;
}

/* Find the place of a statement, else that of the least recently used one. */
static struct kept *plugin_find(struct store *store, const char *sql)
{
    struct kept *oldest = &store->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept *kept = &store->kept[i];
        if (kept->statement && !strcmp(sqlite3_sql(kept->statement), sql))
            return kept;
        if (kept->used < oldest->used)
            oldest = kept;
    }
    sqlite3_finalize(oldest->statement);
    *oldest = (struct kept){0};
    return oldest;
}

static int sqlite_prepare(struct ah_database *database, const char *sql)
{
    struct store *store = store_of(database);
    plugin_reset(store);
    struct kept *kept = plugin_find(store, sql);
    if (!kept->statement) {
        const char *rest = NULL;
        if (sqlite3_prepare_v3(store->file, sql, -1, SQLITE_PREPARE_PERSISTENT, &kept->statement, &rest) != SQLITE_OK)
            return plugin_fail(store, sql);
        if (!kept->statement || strspn(rest, " \t\r\n;") != strlen(rest)) {
            sqlite3_finalize(kept->statement);
            kept->statement = NULL;
            return ah_fail(AH_EINVAL, "expected one statement, got \"%.200s\"", sql);
        }
    }
    kept->used = ++store->clock;
    store->current = kept->statement;
    return sqlite3_bind_parameter_count(store->current);
}

static const char *sqlite_parameter(struct ah_database *database, int at)
{
    const char *name = sqlite3_bind_parameter_name(store_of(database)->current, at + 1);
    return name && *name != '?' ? name + 1 : NULL;
}

static int sqlite_bind(struct ah_database *database, int at, const struct ah_database_value *value)
{
    struct store *store = store_of(database);
    sqlite3_stmt *statement = store->current;
    int code = SQLITE_OK;
    switch (value->kind) {
    case AH_DATABASE_NULL: code = sqlite3_bind_null(statement, at + 1); break;
    case AH_DATABASE_INTEGER: code = sqlite3_bind_int64(statement, at + 1, value->integer); break;
    case AH_DATABASE_REAL: code = sqlite3_bind_double(statement, at + 1, value->real); break;
    case AH_DATABASE_TEXT:
        code = sqlite3_bind_text64(statement, at + 1, value->text, value->bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
        break;
    }
    return code == SQLITE_OK ? 0 : plugin_fail(store, sqlite3_sql(statement));
}

static int sqlite_step(struct ah_database *database)
{
    struct store *store = store_of(database);
    int code = sqlite3_step(store->current);
    if (code == SQLITE_ROW)
        return 1;
    int status = code == SQLITE_DONE ? 0 : plugin_fail(store, sqlite3_sql(store->current));
    plugin_reset(store);
    return status;
}

static int sqlite_columns(struct ah_database *database)
{
    return sqlite3_column_count(store_of(database)->current);
}

static const char *sqlite_name(struct ah_database *database, int column)
{
    return sqlite3_column_name(store_of(database)->current, column);
}

static void sqlite_value(struct ah_database *database, int column, struct ah_database_value *out)
{
    sqlite3_stmt *statement = store_of(database)->current;
    *out = (struct ah_database_value){AH_DATABASE_NULL};
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        out->kind = AH_DATABASE_INTEGER;
        out->integer = sqlite3_column_int64(statement, column);
        break;
    case SQLITE_FLOAT:
        out->kind = AH_DATABASE_REAL;
        out->real = sqlite3_column_double(statement, column);
        break;
    case SQLITE_TEXT:
    case SQLITE_BLOB:
        out->kind = AH_DATABASE_TEXT;
        out->text = sqlite3_column_blob(statement, column);
        out->bytes = (size_t)sqlite3_column_bytes(statement, column);
        break;
    }
}

extern const struct ah_database_driver ah_database_plugin;

const struct ah_database_driver ah_database_plugin = {
    AH_DATABASE_ABI, sqlite_version, open_store, close_store, sqlite_prepare, sqlite_parameter, sqlite_bind,
    sqlite_step, sqlite_columns, sqlite_name, sqlite_value,
};
