/* Keys and values go through libyaml's emitter and jansson, so that whatever a text holds is read back as it was. */
#include "config/write.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/memory/array.h"

enum { TEXT = 4096 };

static int on_yaml(void *context, unsigned char *bytes, size_t count)
{
    return ah_text_append(context, (const char *)bytes, count) == 0;
}

bool ah_settings_is_json(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && !strcmp(path + length - 5, ".json");
}

static bool is_saved(const struct ah_settings *settings, int i)
{
    const struct ah_setting_row *row = &ah_setting_rows[i];
    return ah_setting_is_set(settings, i) && !row->not_in_file && !row->only;
}

static bool is_number(const struct ah_setting_row *row)
{
    return row->rule.kind == AH_VALUE_NUMBER || row->rule.kind == AH_VALUE_WHOLE ||
           row->rule.kind == AH_VALUE_COUNT || row->rule.kind == AH_VALUE_MACHINES;
}

static bool write_emit(yaml_emitter_t *emitter, const char *word, bool quoted)
{
    yaml_event_t event;
    return yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)word, (int)strlen(word), 1, 1,
                                        quoted ? YAML_SINGLE_QUOTED_SCALAR_STYLE : YAML_ANY_SCALAR_STYLE) &&
           yaml_emitter_emit(emitter, &event);
}

/* Write the settings. A word that other readers would read as something else than a text is quoted ("no"). */
static bool emit_rows(yaml_emitter_t *emitter, const struct ah_settings *settings)
{
    char word[TEXT];
    for (int i = 0; i < AH_SETTINGS; i++) {
        const struct ah_setting_row *row = &ah_setting_rows[i];
        if (!is_saved(settings, i))
            continue;
        ah_settings_write(settings, i, word, sizeof word);
        bool quoted = !is_number(row) && row->rule.kind != AH_VALUE_SWITCH && row->rule.kind != AH_VALUE_BYTES;
        if (!write_emit(emitter, row->name, false) || !write_emit(emitter, word, quoted))
            return false;
    }
    return true;
}

static bool emit_all(yaml_emitter_t *emitter, const struct ah_settings *settings)
{
    yaml_event_t event;
    return yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) && yaml_emitter_emit(emitter, &event) &&
           yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) && yaml_emitter_emit(emitter, &event) &&
           yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE) &&
           yaml_emitter_emit(emitter, &event) && emit_rows(emitter, settings) &&
           yaml_mapping_end_event_initialize(&event) && yaml_emitter_emit(emitter, &event) &&
           yaml_document_end_event_initialize(&event, 1) && yaml_emitter_emit(emitter, &event) &&
           yaml_stream_end_event_initialize(&event) && yaml_emitter_emit(emitter, &event);
}

static int write_yaml(const struct ah_settings *settings, struct ah_text *text)
{
    static const char head[] = "# Settings of 'accelhost launch'; 'accelhost config keys' lists all.\n";
    yaml_emitter_t emitter;
    AH_TRY(ah_text_append(text, head, sizeof head - 1));
    if (!yaml_emitter_initialize(&emitter))
        return ah_fail(AH_ENOMEM, "out of memory");
    yaml_emitter_set_output(&emitter, on_yaml, text);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    bool done = emit_all(&emitter, settings);
    yaml_emitter_delete(&emitter);
    /* An event has no reason why it could not be made. */
    return done ? 0 : ah_fail(AH_EINVAL, "a value is no text in UTF-8, or memory is out");
}

static int write_json(const struct ah_settings *settings, struct ah_text *text)
{
    char word[TEXT];
    int status = 0;
    json_t *root = json_object();
    for (int i = 0; root && i < AH_SETTINGS; i++) {
        const struct ah_setting_row *row = &ah_setting_rows[i];
        double number = settings->value[i].number;
        if (!is_saved(settings, i))
            continue;
        ah_settings_write(settings, i, word, sizeof word);
        json_t *value = row->rule.kind == AH_VALUE_SWITCH ? json_boolean(number != 0) : !is_number(row) ?
                        json_string(word) : row->rule.kind == AH_VALUE_NUMBER ? json_real(number) :
                        json_integer((json_int_t)number);
        if (json_object_set_new(root, row->name, value)) {
            json_decref(root);
            return ah_fail(AH_EINVAL, "%s is no text in UTF-8, or memory is out", row->name);
        }
    }
    char *dump = root ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    status = dump ? ah_text_append(text, dump, strlen(dump)) : ah_fail(AH_ENOMEM, "out of memory");
    if (status == 0)
        status = ah_text_append(text, "\n", 1);
    free(dump);
    json_decref(root);
    return status;
}

int ah_settings_format(const struct ah_settings *settings, const char *path, char **out)
{
    struct ah_text text = {0};
    int status = ah_settings_is_json(path) ? write_json(settings, &text) : write_yaml(settings, &text);
    if (status < 0)
        free(text.at);
    else
        *out = text.at;
    return status;
}
