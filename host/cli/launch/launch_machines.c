/* The settings of a job on several machines. num_processes counts the ranks of all of them, as in Accelerate;
 * nproc_per_node those of this one, which may differ between machines, as in torchrun. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/launch/launch_settings.h"

static double launch_machines_number(const struct ah_settings *settings, enum ah_setting setting)
{
    return settings->value[setting].number;
}

int ah_launch_machines(const struct ah_settings *settings)
{
    return (int)launch_machines_number(settings, AH_SETTING_num_machines);
}

int ah_launch_least_machines(const struct ah_settings *settings)
{
    const char *text = settings->value[AH_SETTING_num_machines].text;
    return text && strchr(text, ':') ? (int)strtol(text, NULL, 10) : ah_launch_machines(settings);
}

/* Is num_processes a number of the whole job's? `gpu` and `auto` count the devices here. */
static bool is_total(const struct ah_settings *settings)
{
    const char *text = settings->value[AH_SETTING_num_processes].text;
    return ah_setting_is_set(settings, AH_SETTING_num_processes) && strcasecmp(text, "gpu") && strcasecmp(text, "auto");
}

int ah_launch_ranks(const struct ah_settings *settings)
{
    int ranks = (int)launch_machines_number(settings, AH_SETTING_num_processes);
    if (ah_setting_is_set(settings, AH_SETTING_nproc_per_node))
        return (int)launch_machines_number(settings, AH_SETTING_nproc_per_node);
    return is_total(settings) ? ranks / ah_launch_machines(settings) : ranks;
}

void ah_launch_describe_machines(const struct ah_settings *settings, struct ah_machines_options *out)
{
    const struct ah_setting_value *value = settings->value;
    bool port = ah_setting_is_set(settings, AH_SETTING_main_process_port);
    *out = (struct ah_machines_options){
        .machines = ah_launch_machines(settings), .least = ah_launch_least_machines(settings),
        .number =
            ah_setting_is_set(settings, AH_SETTING_machine_rank) ? (int)value[AH_SETTING_machine_rank].number : -1,
        .address = value[AH_SETTING_main_process_ip].text,
        .port = port ? (int)value[AH_SETTING_main_process_port].number : 29500,
        .ranks = ah_launch_ranks(settings),
        .size = is_total(settings) ? (int)value[AH_SETTING_num_processes].number : 0,
        .last_call = value[AH_SETTING_last_call_timeout].number,
        .restarts = (int)value[AH_SETTING_max_restarts].number,
        .timeout = value[AH_SETTING_timeout].number,
        .stall_warning = value[AH_SETTING_patience].number,
        .heartbeat_timeout = value[AH_SETTING_silence].number,
        .job = value[AH_SETTING_rdzv_id].text,
        .secret_file = value[AH_SETTING_secret_file].origin == AH_FROM_VARIABLE ? NULL
                                                                                : value[AH_SETTING_secret_file].text,
    };
}

/* One machine. */
static int check_alone(const struct ah_settings *settings)
{
    const struct ah_setting_value *value = settings->value;
    if (ah_setting_is_set(settings, AH_SETTING_nproc_per_node) && ah_setting_is_set(settings, AH_SETTING_num_processes))
        return ah_fail(AH_EINVAL, "num_processes (%s) and nproc_per_node (%s) are the same on one machine: set only "
                       "one",
                       value[AH_SETTING_num_processes].where, value[AH_SETTING_nproc_per_node].where);
    if (launch_machines_number(settings, AH_SETTING_machine_rank) > 0)
        return ah_fail(AH_EINVAL, "%s: expected 0 for a job on one machine (set num_machines for more)",
                       value[AH_SETTING_machine_rank].where);
    return 0;
}

/* Check the settings of a job whose machines may join and leave. */
static int check_elastic(const struct ah_settings *settings, const struct ah_machines_options *options)
{
    const struct ah_setting_value *value = settings->value;
    if (options->size)
        return ah_fail(AH_EINVAL, "%s: the ranks of %s machines are not always %d: set their number on each by "
                       "--nproc_per_node", value[AH_SETTING_num_processes].where,
                       value[AH_SETTING_num_machines].text, options->size);
    if (value[AH_SETTING_share].text)
        return ah_fail(AH_EINVAL, "%s: %s is for %.0f ranks or machines, and %s machines are not always as many",
                       value[AH_SETTING_share].where, value[AH_SETTING_share].text, value[AH_SETTING_share].number,
                       value[AH_SETTING_num_machines].text);
    return 0;
}

int ah_launch_check_machines(const struct ah_settings *settings)
{
    const struct ah_setting_value *value = settings->value;
    struct ah_machines_options options;
    ah_launch_describe_machines(settings, &options);
    if (options.machines == 1)
        return check_alone(settings);
    if (!options.address)
        return ah_fail(AH_EINVAL, "%s: the machines need the first one's address: --main_process_ip",
                       value[AH_SETTING_num_machines].where);
    if (options.job && strlen(options.job) >= AH_STORE_JOB)
        return ah_fail(AH_EINVAL, "%s: expected a name of at most %d bytes, got %zu", value[AH_SETTING_rdzv_id].where,
                       AH_STORE_JOB - 1, strlen(options.job));
    if (!options.port)
        return ah_fail(AH_EINVAL, "%s: the machines need a port that all of them know",
                       value[AH_SETTING_main_process_port].where);
    if (options.number >= options.machines)
        return ah_fail(AH_EINVAL, "%s: there is no machine %d of %d; they count from 0",
                       value[AH_SETTING_machine_rank].where, options.number, options.machines);
    if (options.least < options.machines)
        return check_elastic(settings, &options);
    if (options.size && !ah_setting_is_set(settings, AH_SETTING_nproc_per_node) && options.size % options.machines)
        return ah_fail(AH_EINVAL, "%s: %d ranks are not the same number on each of %d machines: set the number on "
                       "each by --nproc_per_node", value[AH_SETTING_num_processes].where, options.size,
                       options.machines);
    return 0;
}
