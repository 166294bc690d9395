/* accelhost help [NAME | WORDS...] and accelhost types DIR: the documentation in the program. A command's help is that
 * of the command; everything else is printed by lua/accelhost/docs, in a new Lua host. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

/* Before a chunk that builds the reference: the process ends after it, so compiled code and a collection of its 40 MB
 * cost more than they save (a third of the time, 2026-11). */
#define BRIEFLY "jit.off() collectgarbage 'stop' "

static bool is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* The topic, "" without one, and behind it the names and summaries of the commands. */
static int help_report(const struct ah_command *commands, const char *topic)
{
    static const char chunk[] = BRIEFLY "local word, commands = select(1, ...), {}\n"
                                "for i = 2, select('#', ...), 2 do commands[#commands + 1] = {select(i, ...)} end\n"
                                "exit_code = require('accelhost.docs.help').print(require 'accelhost', commands,\n"
                                "  word ~= '' and word or nil)\n";
    const char *words[2 * AH_MOST_COMMANDS + 1] = {topic};
    int count = 1;
    for (; commands->name; commands++) {
        words[count++] = commands->name;
        words[count++] = commands->summary;
    }
    return ah_host_run_command("help", chunk, "=help", count, (char **)words);
}

/* A command's own help, and the module of the same name where there is one. */
static int help_command(const struct ah_command *command)
{
    static const char chunk[] = BRIEFLY "io.write(require('accelhost.docs.help').namesake(require 'accelhost', ...))\n"
                                "exit_code = 0\n";
    int code = command->run(1, (char *[]){(char *)"--help", NULL});
    fflush(stdout);
    return code ? code : ah_host_run_command("help", chunk, "=help", 1, (char *[]){(char *)command->name, NULL});
}

int ah_cli_help(const struct ah_command *commands, int argc, char **argv)
{
    char words[1024] = "";
    if (argc > 0 && is_help(argv[0])) {
        ah_help_print(
            "usage: accelhost help [NAME]\n"
            "       accelhost help WORDS...\n\n"
            "Describes a function, a class, a method, a module, a command or a topic. Without a name it lists the\n"
            "modules, commands and topics. Words that are no name are searched in the reference, the guides and the\n"
            "commands' options.");
        return 0;
    }
    for (const struct ah_command *command = commands; argc == 1 && command->name; command++)
        if (!strcmp(command->name, argv[0]))
            return help_command(command);
    for (int i = 0; i < argc; i++) {
        size_t used = strlen(words);
        if ((size_t)snprintf(words + used, sizeof words - used, "%s%s", i ? " " : "", argv[i]) >= sizeof words - used)
            return ah_usage("help", "expected words of at most %zu characters in all", sizeof words - 1);
    }
    return help_report(commands, words);
}

int ah_cli_types(int argc, char **argv)
{
    if (argc > 0 && is_help(argv[0])) {
        ah_help_print(
            "usage: accelhost types DIR\n\n"
            "Writes definition files for the Lua language server into a folder, which is made if it is missing: an\n"
            "editor that knows it completes and explains accelhost's names. In a project's .luarc.json:\n\n"
            "  {\"runtime.version\": \"LuaJIT\", \"workspace.library\": [\"DIR\"]}");
        return 0;
    }
    if (argc != 1)
        return ah_usage("types", "expected a folder, got %d words", argc);
    static const char chunk[] = "exit_code = require 'accelhost.docs.types'(require 'accelhost', ...)";
    return ah_host_run_command("types", chunk, "=help", argc, argv);
}
