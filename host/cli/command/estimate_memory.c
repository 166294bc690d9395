/* accelhost estimate-memory: words in, a table out; everything between is Lua (lua/accelhost/estimate), on the device
 * "meta", or with --trace in steps of a script. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lua.h>

#include "base/status/status.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

struct estimate_options {
    const char *batch, *dtypes, *optimizer, *model;
    bool trace;
    double steps;
};

#define FIELD(name) offsetof(struct estimate_options, name)
static const struct ah_flag estimate_flags[] = {
    {"--batch", AH_FLAG_TEXT, FIELD(batch), .value = "SHAPES",
     .help = "the model's inputs, such as 64x1x28x28 or 8x128:int64,8x1: adds activations and the peak of a step"},
    {"--dtypes", AH_FLAG_TEXT, FIELD(dtypes), .value = "LIST",
     .help = "of float64, float32, bfloat16, float16, int8, int4, nf4 (default float32,bfloat16,float16)"},
    {"--optimizer", AH_FLAG_TEXT, FIELD(optimizer), .value = "NAME",
     .help = "of accelhost.optim, with options as in SGD,momentum=0.9 (default AdamW)"},
    {"--model", AH_FLAG_TEXT, FIELD(model), .value = "NAME",
     .help = "which model of the table that the script returns, or class of accelhost.models for a folder"},
    {"--trace", AH_FLAG_SWITCH, FIELD(trace),
     .help = "run FILE, a script that trains, for some steps, and print its memory at the peak"},
    {"--steps", AH_FLAG_VALUE, FIELD(steps), {.kind = AH_VALUE_WHOLE, 1, 1000}, "N",
     "steps of an optimizer that --trace runs (default 2)"},
};
/* The end of a chunk. */
#define REPORT                                                                                   \
    "io.stdout:flush()\n"                                                                        \
    "text = not fine and tostring(text):gsub('^estimate%-memory:%d+: ', '')\n"                    \
    "if text then io.stderr:write('accelhost estimate-memory: ', text, '\\n') end\n"              \
    "exit_code = fine and 0 or 1\n"

enum { FLAGS = sizeof estimate_flags / sizeof *estimate_flags };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost estimate-memory FILE [options]\n"
        "       accelhost estimate-memory --trace [--steps N] SCRIPT [ARGUMENTS]\n\n"
        "Prints the memory of training: weights, gradients, an optimizer's state, the largest layer, for each dtype,\n"
        "and for a batch the activations of its forward and the peak of a step. FILE is a script that returns a\n"
        "model, a function or class that makes one, or a table of these, which is run on shapes alone (device\n"
        "\"meta\"): no memory is allocated, nothing is computed. Or it is a checkpoint's folder, whose config.json\n"
        "describes the model, or a file of weights (.safetensors, .safetensors.index.json, .npz, .pt), whose header\n"
        "is read.\n\n"
        "With --trace a script that trains is run for some steps, on the CPU in one process. Its table has the\n"
        "memory at the peak by kind, activations by module and op, the largest allocations with the lines of the\n"
        "script that made them, and the peak of each phase.\n\noptions:");
    ah_flags_print(estimate_flags, FLAGS);
    ah_help_print("\nexit codes: 0 ok, 1 the file or the model is wrong, 2 usage");
}

/* Run a chunk that sets the global exit_code. */
static int estimate_run(const char *chunk, int argc, char **argv, int given, char **arguments)
{
    struct ah_host host = {0};
    int code = 1;
    int status = ah_host_open(&host, &(struct ah_host_options){0});
    if (status == 0)
        status = ah_host_set_arguments(&host, argv[0], given, arguments);
    if (status == 0)
        status = ah_host_run_text(&host, chunk, strlen(chunk), "=estimate-memory", argc, argv);
    if (status < 0) {
        fprintf(stderr, "accelhost estimate-memory: %s\n", status == AH_ELUA ? ah_host_error(&host) : ah_error_text());
    } else {
        lua_getglobal(host.lua, "exit_code");
        code = (int)lua_tointeger(host.lua, -1);
    }
    ah_host_close(&host);
    return code;
}

static int estimate_shapes(const char *path, const struct estimate_options *options)
{
    static const char chunk[] =
        "local path, batch, dtypes, optimizer, model = ...\n"
        "local function given(text) return text ~= '' and text or nil end\n"
        "local fine, text = pcall(require 'accelhost.estimate', require 'accelhost', path, {batch = given(batch),\n"
        "  dtypes = given(dtypes), optimizer = given(optimizer), model = given(model)})\n" REPORT;
    const char *words[] = {path, options->batch, options->dtypes, options->optimizer, options->model};
    for (int i = 1; i < 5; i++)
        words[i] = words[i] ? words[i] : "";
    return estimate_run(chunk, 5, (char **)words, 0, NULL);
}

static int estimate_trace(const char *path, const struct estimate_options *options, int argc, char **argv)
{
    static const char chunk[] =
        "local path, steps = ...\n"
        "local trace = require 'accelhost.estimate.trace'\n"
        "local fine, text = pcall(trace, require 'accelhost', path, tonumber(steps), arg)\n"
        REPORT;
    char steps[16];
    snprintf(steps, sizeof steps, "%.0f", options->steps);
    return estimate_run(chunk, 2, (char *[]){(char *)(uintptr_t)path, steps}, argc, argv);
}

int ah_cli_estimate_memory(int argc, char **argv)
{
    struct estimate_options options = {0};
    const char *path = argc && argv[0][0] != '-' ? argv[0] : NULL;
    int skip = path != NULL,
        first = ah_flags_read("estimate-memory", estimate_flags, FLAGS, print_help, argc - skip, argv + skip, &options);
    if (first < 0)
        return -1 - first;
    first += skip;
    if (!path && first < argc)
        path = argv[first++];
    if (!path)
        return ah_usage("estimate-memory", "expected a model script, a checkpoint's folder or a file of weights");
    if (!options.trace && options.steps > 0)
        return ah_usage("estimate-memory", "--steps: expected --trace with it");
    if (options.trace && (options.batch || options.dtypes || options.optimizer || options.model))
        return ah_usage("estimate-memory", "--trace: the script has model, optimizer and batches; expected no --batch, "
                        "--dtypes, --optimizer or --model");
    if (!options.trace && first < argc)
        return ah_usage("estimate-memory", "unexpected argument '%s'", argv[first]);
    if (access(path, R_OK))
        return ah_usage("estimate-memory", "cannot read '%s'", path);
    if (!options.trace)
        return estimate_shapes(path, &options);
    options.steps = options.steps > 0 ? options.steps : 2;
    return estimate_trace(path, &options, argc - first, argv + first);
}
