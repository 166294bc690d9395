/* The number of ranks and their devices, where that depends on the GPUs present: they are counted only where it does,
 * after all settings have been read. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/base/gpus.h"
#include "cli/launch/launch_settings.h"

enum { TYPE_NO, TYPE_MULTI_CPU, TYPE_MULTI_GPU }; /* places of distributed_type's words */

static bool is_type(const struct ah_settings *settings, int type)
{
    const struct ah_setting_value *value = &settings->value[AH_SETTING_distributed_type];
    return value->text && (int)value->number == type;
}

/* Set cpu or multi_gpu from distributed_type, and check them. */
static int settle_cpu(struct ah_settings *settings)
{
    const struct ah_setting_value *value = settings->value, *type = &value[AH_SETTING_distributed_type];
    const struct ah_setting_row *cpu = &ah_setting_rows[AH_SETTING_cpu];
    if (is_type(settings, TYPE_MULTI_CPU) && !ah_setting_is_set(settings, AH_SETTING_cpu))
        AH_TRY(ah_settings_set(settings, cpu, "true", type->origin, type->where, type->where));
    if (value[AH_SETTING_cpu].number && value[AH_SETTING_multi_gpu].number)
        return ah_fail(AH_EINVAL, "--multi_gpu: not possible: ranks run on the CPU by %s", value[AH_SETTING_cpu].where);
    return 0;
}

/* Return the setting of the number of ranks here. */
static enum ah_setting launch_processes_counted(const struct ah_settings *settings)
{
    return ah_setting_is_set(settings, AH_SETTING_nproc_per_node) ? AH_SETTING_nproc_per_node :
                                                                    AH_SETTING_num_processes;
}

/* The word that it was given in place of a number. */
static bool is_count(const struct ah_settings *settings, const char *word)
{
    return !strcasecmp(settings->value[launch_processes_counted(settings)].text, word);
}

/* Return the setting that requires GPUs, so that it is an error when there are none; NULL: none. */
static const char *wanted_by(const struct ah_settings *settings, const char *ids)
{
    if (settings->value[AH_SETTING_multi_gpu].number)
        return "--multi_gpu";
    if (ids)
        return settings->value[AH_SETTING_gpu_ids].where;
    if (is_count(settings, "gpu"))
        return settings->value[launch_processes_counted(settings)].where;
    return is_type(settings, TYPE_MULTI_GPU) ? settings->value[AH_SETTING_distributed_type].where : NULL;
}

static int set_count(struct ah_settings *settings, int count)
{
    enum { MOST = 256 };
    struct ah_setting_value *value = &settings->value[launch_processes_counted(settings)];
    char text[16];
    count = count < MOST ? count : MOST;
    snprintf(text, sizeof text, "%d", count);
    if (!ah_setting_is_set(settings, launch_processes_counted(settings)))
        return ah_settings_set(settings, &ah_setting_rows[AH_SETTING_num_processes], text, AH_FROM_DEFAULT,
                               "num_processes", "one for each GPU");
    value->number = count;
    return 0;
}

static int settle_gpus(struct ah_settings *settings)
{
    const struct ah_setting_value *chosen = &settings->value[AH_SETTING_gpu_ids];
    const char *ids = chosen->text && strcasecmp(chosen->text, "all") ? chosen->text : NULL;
    const char *setting = wanted_by(settings, ids);
    bool given = ah_setting_is_set(settings, launch_processes_counted(settings));
    bool open = given ? is_count(settings, "auto") || is_count(settings, "gpu") : !is_type(settings, TYPE_NO);
    int named = 0, count;
    char reason[512];
    if (ids)
        AH_TRY(ah_gpus_check(chosen->where, ids, &named));
    if (!setting && !open)
        return 0;
    AH_TRY(ah_gpus_count(ids, &count, setting ? reason : NULL, sizeof reason));
    if (setting && !count)
        return ah_fail(AH_EINVAL, "%s: there is no GPU: %s", setting, reason);
    if (ids && count < named)
        return ah_fail(AH_EINVAL, "%s: of %s the driver sees %d device%s", chosen->where, ids, count,
                       count == 1 ? "" : "s");
    return open && count ? set_count(settings, count) : 0;
}

int ah_launch_settle_processes(struct ah_settings *settings)
{
    AH_TRY(settle_cpu(settings));
    if (!settings->value[AH_SETTING_cpu].number)
        return settle_gpus(settings);
    if (is_count(settings, "gpu"))
        return ah_fail(AH_EINVAL, "%s: gpu: not possible: ranks run on the CPU by %s",
                       settings->value[launch_processes_counted(settings)].where,
                       settings->value[AH_SETTING_cpu].where);
    return 0;
}
