/* Handing a job over to another launcher, which starts the ranks by its own means: this process becomes it. The ranks
 * understand its variables (comm/control/topology.h). Invariant: the words are those that --dry_run shows. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/program.h"
#include "cli/launch/launch_settings.h"

enum { WORDS = 96, PATH = 4096, HOST = 256 };
enum { ENGINE_OWN, ENGINE_MPIRUN, ENGINE_SRUN }; /* places of launcher's words */

struct engine {
    const struct ah_settings *settings;
    int kind, ranks, per_node, machines;
    char number[4][32], program[PATH], host[HOST], master[HOST + 16];
    const char *word[WORDS + 1];
    int count;
};

bool ah_launch_is_handed_over(const struct ah_settings *settings)
{
    return settings->value[AH_SETTING_launcher].number != ENGINE_OWN || settings->value[AH_SETTING_hostfile].text;
}

int ah_launch_check_engine(const struct ah_settings *settings)
{
    static const enum ah_setting ours[] = {AH_SETTING_max_restarts, AH_SETTING_last_call_timeout,
                                           AH_SETTING_log_dir, AH_SETTING_tee, AH_SETTING_redirects,
                                           AH_SETTING_machine_rank};
    const struct ah_setting_value *value = settings->value;
    bool srun = value[AH_SETTING_launcher].number == ENGINE_SRUN;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ah_setting_is_set(settings, ours[i]) && strcmp(value[ours[i]].text, "0") &&
            (srun || ours[i] != AH_SETTING_log_dir))
            return ah_fail(AH_EINVAL, "%s: %s starts the ranks, and does nothing like it", value[ours[i]].where,
                           srun ? "srun" : "mpirun");
    if (ah_launch_least_machines(settings) < ah_launch_machines(settings))
        return ah_fail(AH_EINVAL, "%s: %s starts the ranks on a number of machines that stays",
                       value[AH_SETTING_num_machines].where, srun ? "srun" : "mpirun");
    if (value[AH_SETTING_recover].number)
        return ah_fail(AH_EINVAL, "%s: %s starts the ranks, and replaces none", value[AH_SETTING_recover].where,
                       srun ? "srun" : "mpirun");
    if (srun && value[AH_SETTING_hostfile].text)
        return ah_fail(AH_EINVAL, "%s: srun has its nodes from Slurm", value[AH_SETTING_hostfile].where);
    return 0;
}

static void launch_engine_add(struct engine *engine, const char *word)
{
    if (engine->count < WORDS)
        engine->word[engine->count++] = word;
}

static void add_number(struct engine *engine, int place, const char *word, int number)
{
    snprintf(engine->number[place], sizeof engine->number[place], "%d", number);
    launch_engine_add(engine, word);
    launch_engine_add(engine, engine->number[place]);
}

/* The first host of a file such as "node1 slots=2" or "node1:2". */
static int read_hostfile(struct engine *engine, const char *path)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    if (!file)
        return ah_fail(AH_EINVAL, "the host file %s: %s", path, strerror(errno));
    while (!engine->host[0] && fgets(line, sizeof line, file)) {
        const char *at = line + strspn(line, " \t");
        snprintf(engine->host, sizeof engine->host, "%.*s", (int)strcspn(at, " \t\r\n:#"), at);
    }
    fclose(file);
    return engine->host[0] ? 0 : ah_fail(AH_EINVAL, "the host file %s names no host", path);
}

/* Open MPI's, which places ranks host by host only with an option. */
static int describe_mpirun(struct engine *engine, const char *const *variables)
{
    const struct ah_setting_value *value = engine->settings->value;
    const char *file = value[AH_SETTING_hostfile].text, *address = value[AH_SETTING_main_process_ip].text;
    launch_engine_add(engine, "mpirun");
    add_number(engine, 0, "-n", engine->ranks);
    if (file) {
        AH_TRY(read_hostfile(engine, file));
        launch_engine_add(engine, "--hostfile");
        launch_engine_add(engine, file);
    }
    launch_engine_add(engine, "--map-by");
    if (engine->per_node)
        snprintf(engine->number[1], sizeof engine->number[1], "ppr:%d:node", engine->per_node);
    launch_engine_add(engine, engine->per_node ? engine->number[1] : "slot");
    launch_engine_add(engine, "--bind-to");
    launch_engine_add(engine, "none");
    if (value[AH_SETTING_log_dir].text) {
        launch_engine_add(engine, "--output-filename");
        launch_engine_add(engine, value[AH_SETTING_log_dir].text);
    }
    if (address || engine->host[0]) {
        snprintf(engine->master, sizeof engine->master, "MASTER_ADDR=%s", address ? address : engine->host);
        launch_engine_add(engine, "-x");
        launch_engine_add(engine, engine->master);
    }
    for (const char *const *at = variables; *at; at++) {
        launch_engine_add(engine, "-x");
        launch_engine_add(engine, *at);
    }
    return 0;
}

/* Slurm's hands this process's environment on. */
static void describe_srun(struct engine *engine)
{
    launch_engine_add(engine, "srun");
    add_number(engine, 0, "--ntasks", engine->ranks);
    if (engine->machines > 1)
        add_number(engine, 1, "--nodes", engine->machines);
    if (engine->per_node)
        add_number(engine, 2, "--ntasks-per-node", engine->per_node);
    launch_engine_add(engine, "--distribution=block");
    launch_engine_add(engine, "--kill-on-bad-exit=1");
}

/* As the shell reads it. */
static void print_word(const char *word)
{
    bool plain = *word != 0;
    for (const char *c = word; *c; c++)
        plain = plain && (isalnum((unsigned char)*c) || strchr("-_=./:,%+@", *c));
    if (plain) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (const char *c = word; *c; c++)
        *c == '\'' ? fputs("'\\''", stdout) : putchar(*c);
    putchar('\'');
}

/* The whole job's ranks, as far as they follow. */
static void count_ranks(struct engine *engine)
{
    const struct ah_settings *settings = engine->settings;
    engine->machines = ah_launch_machines(settings);
    engine->per_node = ah_setting_is_set(settings, AH_SETTING_nproc_per_node) ? ah_launch_ranks(settings) : 0;
    engine->ranks = ah_setting_is_set(settings, AH_SETTING_num_processes)
                        ? (int)settings->value[AH_SETTING_num_processes].number
                        : ah_launch_ranks(settings) * engine->machines;
    if (!engine->per_node && engine->machines > 1 && engine->ranks % engine->machines == 0)
        engine->per_node = engine->ranks / engine->machines;
}

static int launch_engine_describe(struct engine *engine, char *const *command, const char *const *variables)
{
    if (!ah_program_path(engine->program, sizeof engine->program))
        return ah_fail(AH_EIO, "cannot find the path of this program");
    count_ranks(engine);
    if (engine->kind == ENGINE_SRUN)
        describe_srun(engine);
    else
        AH_TRY(describe_mpirun(engine, variables));
    launch_engine_add(engine, engine->program);
    for (char *const *at = command + 1; *at; at++)
        launch_engine_add(engine, *at);
    return engine->count < WORDS ? 0 : ah_fail(AH_EINVAL, "expected at most %d words, as many as fit", WORDS);
}

int ah_launch_hand_over(const struct ah_settings *settings, char *const *command, const char *const *variables)
{
    static struct engine engine;
    engine = (struct engine){.settings = settings, .kind = (int)settings->value[AH_SETTING_launcher].number};
    AH_TRY(launch_engine_describe(&engine, command, variables));
    if (settings->value[AH_SETTING_dry_run].number) {
        for (int i = 0; i < engine.count; i++) {
            print_word(engine.word[i]);
            putchar(i + 1 < engine.count ? ' ' : '\n');
        }
        return 0;
    }
    for (const char *const *at = variables; *at && engine.kind == ENGINE_SRUN; at++)
        putenv((char *)(uintptr_t)*at);
    fflush(NULL);
    execvp(engine.word[0], (char *const *)(uintptr_t)engine.word);
    return ah_fail(AH_EIO, "cannot start %s: %s", engine.word[0], strerror(errno));
}
