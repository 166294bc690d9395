/* accelhost generate: words in, a text out; options, their help and everything else are Lua (lua/accelhost/generate),
 * since the options are those of the library's GenerationConfig. */
#include "cli/command/command.h"
#include "cli/process/host.h"

int ah_cli_generate(int argc, char **argv)
{
    return ah_host_run_command("generate", "exit_code = require 'accelhost.generate'(...)\n", "=generate", argc, argv);
}
