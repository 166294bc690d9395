/* A table of questions. An answer is checked by the setting's own rule, so that the answers and the values of a file
 * cannot differ. */
#include "cli/command/config_questions.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "cli/base/gpus.h"
#include "tensor/device.h"

/* Numbers have to be those of GPUs that are here. */
static int check_gpus(const char *answer)
{
    int count, here = ah_device_count("cuda");
    if (!strcmp(answer, "all"))
        return 0;
    AH_TRY(ah_gpus_check("gpu_ids", answer, &count));
    for (const char *at = answer; *at; at += strcspn(at, ","), at += *at == ',')
        if (strspn(at, "0123456789") && strtol(at, NULL, 10) >= here)
            return ah_fail(AH_EINVAL, "gpu_ids: there %s %d GPU%s, got '%s'", here == 1 ? "is" : "are", here,
                           here == 1 ? "" : "s", answer);
    return 0;
}

static const struct question {
    enum ah_setting setting;
    const char *text;
    enum { ALWAYS, WITH_GPUS, ON_GPUS, WITH_MACHINES } when; /* there are some; they are to be used; several */
    int (*check)(const char *answer);         /* before the setting's own rule; NULL: nothing */
    const char *unset;                        /* how not setting it is called; NULL: none */
} questions[] = {
    {AH_SETTING_cpu, "Shall they train on the CPU although there are GPUs (true, false)?", .when = WITH_GPUS},
    {AH_SETTING_num_processes, "How many processes (ranks) shall train together?", .when = ALWAYS},
    {AH_SETTING_gpu_ids, "Which GPUs shall they use (all, or numbers as in 0,1)?", ON_GPUS, check_gpus, "all"},
    {AH_SETTING_num_cpu_threads_per_process, "How many threads shall each of them use (none: processors / ranks)?",
     .when = ALWAYS},
    {AH_SETTING_mixed_precision, "Mixed precision (no, bf16, fp16, fp8)?", .when = ALWAYS},
    {AH_SETTING_gradient_accumulation_steps, "How many micro-batches make an optimizer step?", .when = ALWAYS},
    {AH_SETTING_max_restarts, "How often shall a failed job be restarted?", .when = ALWAYS},
    {AH_SETTING_timeout, "How many seconds may a rank wait for the others?", .when = ALWAYS},
    {AH_SETTING_max_memory, "How much memory may a rank allocate (2G, 500M; none: no limit)?", .when = ALWAYS},
    {AH_SETTING_log_dir, "In which folder shall the ranks' output be stored (none: nowhere)?", .when = ALWAYS},
    {AH_SETTING_num_machines, "On how many machines shall the job run?", .when = ALWAYS},
    {AH_SETTING_machine_rank, "Rank of this machine (0, 1, ...; none: by order of arrival)?", .when = WITH_MACHINES},
    {AH_SETTING_main_process_ip, "What is the address of the first one (number 0)?", .when = WITH_MACHINES},
    {AH_SETTING_main_process_port, "On which port do they meet there (none: 29500)?", .when = WITH_MACHINES},
};
enum { QUESTIONS = sizeof questions / sizeof *questions, TEXT = 4096 };

static double memory_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

void ah_config_print_machine(void)
{
    int gpus = ah_device_count("cuda"), processors = ah_cpu_count();
    printf("%d processor%s, %.1f GiB of memory, ", processors, processors == 1 ? "" : "s",
           memory_bytes() / (1 << 30));
    printf(gpus ? "%d GPU%s\n" : "no GPU\n", gpus, gpus == 1 ? "" : "s");
}

/* One rank per GPU; without GPUs one per processor, with at least 1 GiB of memory each and 8 at most: every rank adds a
 * batch, and few trainings want a hundred times their batch. */
int ah_config_suggest_ranks(struct ah_settings *settings)
{
    enum { MOST = 8 };
    char text[32];
    int processors = ah_cpu_count(), room = (int)(memory_bytes() / (1 << 30)), gpus = ah_device_count("cuda");
    int ranks = gpus ? gpus : processors < room ? processors : room;
    const struct ah_setting_row *row = &ah_setting_rows[AH_SETTING_num_processes];
    if (ah_setting_is_set(settings, AH_SETTING_num_processes))
        return 0;
    snprintf(text, sizeof text, "%d", ranks < 1 ? 1 : ranks > MOST ? MOST : ranks);
    return ah_settings_set(settings, row, text, AH_FROM_FILE, row->name, NULL);
}

/* An answer without the blanks around it; AH_EIO at the end of the input. */
static int read_answer(char *answer, size_t room)
{
    if (!fgets(answer, (int)room, stdin))
        return ah_fail(AH_EIO, "the input ended before the questions: nothing is written");
    size_t bytes = strlen(answer), skip = strspn(answer, " \t");
    while (bytes > skip && strchr(" \t\r\n", answer[bytes - 1]))
        bytes--;
    answer[bytes] = 0;
    memmove(answer, answer + skip, bytes - skip + 1);
    return 0;
}

static int config_questions_ask(struct ah_settings *settings, const struct question *question)
{
    const struct ah_setting_row *row = &ah_setting_rows[question->setting];
    char answer[TEXT], now[TEXT];
    for (;;) {
        ah_settings_write(settings, question->setting, now, sizeof now);
        printf("%s [%s]: ", question->text, *now ? now : question->unset ? question->unset : "none");
        fflush(stdout);
        AH_TRY(read_answer(answer, sizeof answer));
        if (!row->fallback && !strcmp(answer, "none")) {
            ah_settings_unset(settings, question->setting);
            return 0;
        }
        const char *text = *answer ? answer : now;
        if (!*text)
            return 0;
        int status = question->check ? question->check(text) : 0;
        ah_settings_unset(settings, question->setting); /* a second answer replaces the first */
        if (status == 0)
            status = ah_settings_set(settings, row, text, AH_FROM_FILE, row->name, NULL);
        if (status != AH_EINVAL)
            return status;
        printf("  %s\n", ah_error_text());
        if (*now)
            AH_TRY(ah_settings_set(settings, row, now, AH_FROM_FILE, row->name, NULL));
    }
}

static bool config_questions_applies(const struct ah_settings *settings, const struct question *question, bool gpus)
{
    switch (question->when) {
    case WITH_GPUS: return gpus;
    case ON_GPUS: return gpus && settings->value[AH_SETTING_cpu].number == 0;
    case WITH_MACHINES: return settings->value[AH_SETTING_num_machines].number > 1;
    default: return true;
    }
}

int ah_config_ask(struct ah_settings *settings)
{
    bool gpus = ah_device_count("cuda") > 0;
    for (int i = 0; i < QUESTIONS; i++)
        if (config_questions_applies(settings, &questions[i], gpus))
            AH_TRY(config_questions_ask(settings, &questions[i]));
    return 0;
}
