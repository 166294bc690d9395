/* Compile the Lua library for the binary: bytecode with debug information for tracebacks, each module packed, as one
 * file of bytes, and a C table of its pieces. Sources would cost each start ten times as much; one that does not
 * compile stops the build. The documentation of the sources follows, as one text, and then the sources themselves and
 * files that are not Lua (style sheets, scripts of pages). Nothing is unpacked before it is requested.
 *
 * usage: embed OUT.c OUT.bin lua/accelhost/init.lua ... lua/accelhost/PAGE.css --docs SCRIPT SOURCE... */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "bind/library.h"

/* A text that grows. */
struct text {
    char *bytes;
    size_t length;
};

static void append(struct text *text, const void *piece, size_t bytes)
{
    text->bytes = realloc(text->bytes, text->length + bytes);
    if (!text->bytes)
        exit(1);
    memcpy(text->bytes + text->length, piece, bytes);
    text->length += bytes;
}

/* lua_Writer of lua_dump. */
static int append_bytecode(lua_State *L, const void *piece, size_t bytes, void *to)
{
    append(to, piece, bytes);
    return 0;
}

/* Write a text, packed, and the fields of its struct ah_packed; not 0 when that fails. */
static int write_packed(FILE *table, FILE *bytes, const char *text, size_t length)
{
    static size_t written;
    uLongf packed = compressBound(length);
    Bytef *room = malloc(packed);
    if (!room || compress2(room, &packed, (const Bytef *)text, length, 9) != Z_OK ||
        fwrite(room, 1, packed, bytes) != packed)
        return fprintf(stderr, "embed: a text cannot be packed\n"), 1;
    free(room);
    fprintf(table, "{ah_lua + %zu, %zu, %zu}", written, (size_t)packed, length);
    written += packed;
    return 0;
}

/* One row of the table: accelhost/nn/init.lua is the module accelhost.nn. */
static int write_row(FILE *table, FILE *bytes, const char *path, const struct text *bytecode)
{
    char module[256];
    size_t length = strlen(path) - strlen(".lua");
    if (!strcmp(path + length - strlen("/init"), "/init.lua"))
        length -= strlen("/init");
    snprintf(module, sizeof module, "%.*s", (int)length, path);
    for (char *at = module; (at = strchr(at, '/'));)
        *at = '.';
    fprintf(table, "    {\"%s\", \"%s\", ", module, path);
    int failed = write_packed(table, bytes, bytecode->bytes, bytecode->length);
    fprintf(table, "},\n");
    return failed;
}

/* A text and its name in C. */
static int write_named(FILE *table, FILE *bytes, const char *name, const char *text, size_t length)
{
    fprintf(table, "const struct ah_packed %s = ", name);
    int failed = write_packed(table, bytes, text, length);
    fprintf(table, ";\n");
    return failed;
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
    return write_named(table, bytes, "ah_docs", text, length);
}

/* Append a source to the text of all, behind a line "@@ PATH". */
static void append_source(struct text *sources, const char *path, const char *text, size_t length)
{
    append(sources, "\n@@ ", 4);
    append(sources, path, strlen(path));
    append(sources, "\n", 1);
    append(sources, text, length);
}

int main(int argc, char **argv)
{
    FILE *table = argc > 3 ? fopen(argv[1], "w") : NULL, *bytes = table ? fopen(argv[2], "wb") : NULL;
    lua_State *L = luaL_newstate();
    struct text sources = {0}, bytecode = {0};
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
        size_t length;
        FILE *file = fopen(argv[i], "rb");
        char text[1 << 17], chunk[256];
        if (!file || (length = fread(text, 1, sizeof text, file)) == sizeof text)
            return fprintf(stderr, "embed: %s: cannot be read, or is over %zu bytes\n", argv[i], sizeof text), 1;
        fclose(file);
        append_source(&sources, path, text, length);
        if (strcmp(path + strlen(path) - strlen(".lua"), ".lua"))
            continue;
        snprintf(chunk, sizeof chunk, AH_LIBRARY_CHUNK "%s", path + strlen("accelhost/"));
        bytecode.length = 0;
        if (luaL_loadbuffer(L, text, length, chunk) || lua_dump(L, append_bytecode, &bytecode))
            return fprintf(stderr, "embed: %s\n", lua_tostring(L, -1)), 1;
        lua_settop(L, 0);
        if (write_row(table, bytes, path, &bytecode))
            return 1;
    }
    fprintf(table, "    {0},\n};\n");
    if (i + 1 < argc && write_docs(L, argc - i - 1, argv + i + 1, table, bytes))
        return 1;
    if (write_named(table, bytes, "ah_sources", sources.bytes, sources.length))
        return 1;
    lua_close(L);
    return fclose(table) || fclose(bytes);
}
