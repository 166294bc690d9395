/* Compile the Lua library for the binary: bytecode with debug information for tracebacks, as one file of bytes, and a C
 * table of its pieces. Sources would cost each start ten times as much; one that does not compile stops the build. The
 * documentation of the sources follows, as one text, and then the sources themselves and files that are not Lua (style
 * sheets, scripts of pages), both packed: neither is read before it is requested.
 *
 * usage: embed OUT.c OUT.bin lua/accelhost/init.lua ... lua/accelhost/PAGE.css --docs SCRIPT SOURCE... */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "bind/library.h"

static size_t written;

static int append(lua_State *L, const void *piece, size_t bytes, void *to)
{
    written += bytes;
    return fwrite(piece, 1, bytes, to) != bytes;
}

/* One row of the table: accelhost/nn/init.lua is the module accelhost.nn. */
static void write_row(FILE *table, const char *path, size_t begin, size_t end)
{
    char module[256];
    size_t length = strlen(path) - strlen(".lua");
    if (!strcmp(path + length - strlen("/init"), "/init.lua"))
        length -= strlen("/init");
    snprintf(module, sizeof module, "%.*s", (int)length, path);
    for (char *at = module; (at = strchr(at, '/'));)
        *at = '.';
    fprintf(table, "    {\"%s\", \"%s\", ah_lua + %zu, %zu},\n", module, path, begin, end - begin);
}

/* Write a text, packed, and its row; not 0 when that fails. */
static int write_packed(FILE *table, FILE *bytes, const char *name, const char *text, size_t length)
{
    uLongf packed = compressBound(length);
    Bytef *room = malloc(packed);
    size_t begin = written;
    if (!room || compress2(room, &packed, (const Bytef *)text, length, 9) != Z_OK || append(NULL, room, packed, bytes))
        return fprintf(stderr, "embed: %s cannot be packed\n", name), 1;
    free(room);
    fprintf(table, "const struct ah_packed %s = {ah_lua + %zu, %zu, %zu};\n", name, begin, (size_t)packed, length);
    return 0;
}

/* Run the script with the sources' paths; its result is the text. */
static int write_docs(lua_State *L, int count, char **words, FILE *table, FILE *bytes)
{
    size_t length;
    luaL_openlibs(L);
    if (luaL_loadfile(L, words[0]))
        return fprintf(stderr, "embed: %s\n", lua_tostring(L, -1)), 1;
    luaL_checkstack(L, count, "sources");
    for (int i = 1; i < count; i++)
        lua_pushstring(L, words[i]);
    if (lua_pcall(L, count - 1, 1, 0))
        return fprintf(stderr, "embed: %s\n", lua_tostring(L, -1)), 1;
    const char *text = lua_tolstring(L, -1, &length);
    return write_packed(table, bytes, "ah_docs", text, length);
}

/* All sources as one text, each behind a line "@@ PATH". */
static struct {
    char *text;
    size_t bytes;
} sources;

static void keep_source(const char *path, const char *text, size_t length)
{
    size_t room = sources.bytes + strlen(path) + length + 8;
    sources.text = realloc(sources.text, room);
    if (!sources.text)
        exit(1);
    sources.bytes += (size_t)sprintf(sources.text + sources.bytes, "\n@@ %s\n", path);
    memcpy(sources.text + sources.bytes, text, length);
    sources.bytes += length;
}

int main(int argc, char **argv)
{
    FILE *table = argc > 3 ? fopen(argv[1], "w") : NULL, *bytes = table ? fopen(argv[2], "wb") : NULL;
    lua_State *L = luaL_newstate();
    if (!bytes || !L)
        return fprintf(stderr, "usage: embed OUT.c OUT.bin lua/accelhost/init.lua ...\n"), 2;
    fprintf(table,
            "#include \"bind/lua/embedded.h\"\n"
            "__asm__(\".section .rodata\\n.balign 16\\n.global ah_lua\\nah_lua:\\n\"\n"
            "        \".incbin \\\"%s\\\"\\n.previous\");\n"
            "extern const char ah_lua[];\n"
            "const struct ah_embedded ah_embedded[] = {\n",
            argv[2]);
    int i = 3;
    for (; i < argc && strcmp(argv[i], "--docs"); i++) {
        const char *path = argv[i] + strlen("lua/");
        size_t length, begin = written;
        FILE *file = fopen(argv[i], "rb");
        char text[1 << 17], chunk[256];
        if (!file || (length = fread(text, 1, sizeof text, file)) == sizeof text)
            return fprintf(stderr, "embed: %s: cannot be read, or is over %zu bytes\n", argv[i], sizeof text), 1;
        fclose(file);
        keep_source(path, text, length);
        if (strcmp(path + strlen(path) - strlen(".lua"), ".lua"))
            continue;
        snprintf(chunk, sizeof chunk, AH_LIBRARY_CHUNK "%s", path + strlen("accelhost/"));
        if (luaL_loadbuffer(L, text, length, chunk) || lua_dump(L, append, bytes))
            return fprintf(stderr, "embed: %s\n", lua_tostring(L, -1)), 1;
        lua_settop(L, 0);
        write_row(table, path, begin, written);
    }
    fprintf(table, "    {0},\n};\n");
    if (i + 1 < argc && write_docs(L, argc - i - 1, argv + i + 1, table, bytes))
        return 1;
    if (write_packed(table, bytes, "ah_sources", sources.text, sources.bytes))
        return 1;
    lua_close(L);
    return fclose(table) || fclose(bytes);
}
