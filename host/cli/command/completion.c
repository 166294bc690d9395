/* accelhost completion SHELL: the completion script of a shell, made by lua/accelhost/docs from the commands' help. */
#include <stdio.h>
#include <string.h>

#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

int ah_cli_completion(int argc, char **argv)
{
    if (argc > 0 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))) {
        ah_help_print("usage: accelhost completion bash|zsh|fish\n\n"
                      "Prints a script by which the shell completes commands, options and their values. For good:\n\n"
                      "  bash  accelhost completion bash >~/.local/share/bash-completion/completions/accelhost\n"
                      "  zsh   accelhost completion zsh >FOLDER/_accelhost, a folder of $fpath\n"
                      "  fish  accelhost completion fish >~/.config/fish/completions/accelhost.fish\n\n"
                      "make install and the Debian package install these files.");
        return 0;
    }
    if (argc != 1 || (strcmp(argv[0], "bash") && strcmp(argv[0], "zsh") && strcmp(argv[0], "fish")))
        return ah_usage("completion", "expected bash, zsh or fish, got %s%s%s", argc ? "'" : "",
                        argc ? argv[0] : "nothing", argc ? "'" : "");
    static const char chunk[] = "exit_code = require 'accelhost.docs.completion'.print(...)";
    return ah_host_run_command("completion", chunk, "=completion", argc, argv);
}
