/* Functions for all sections of a tokenizer.json: fields of one type, and parts by their type. */
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"

int ah_load_flag(const json_t *object, const char *what, const char *name, bool fallback, bool *out)
{
    const json_t *value = json_object_get(object, name);
    *out = value && !json_is_null(value) ? json_is_true(value) : fallback;
    return !value || json_is_null(value) || json_is_boolean(value)
               ? 0
               : ah_fail(AH_EINVAL, "%s: %s: expected true or false", what, name);
}

int ah_load_text(const json_t *object, const char *what, const char *name, const char **out)
{
    const json_t *value = json_object_get(object, name);
    *out = json_string_value(value);
    return !value || json_is_null(value) || *out ? 0 : ah_fail(AH_EINVAL, "%s: %s: expected a text", what, name);
}

static int load_step(struct ah_tokenizer *tokenizer, const json_t *value, const struct ah_load_section *section,
                     const struct ah_load_type *type)
{
    const json_t *list = json_object_get(value, section->sequence), *item;
    void *step;
    size_t i;
    if (type->kind != AH_LOAD_SEQUENCE) {
        AH_TRY(section->add(tokenizer, type->kind, &step));
        return type->load ? type->load(step, value) : 0;
    }
    if (!json_is_array(list))
        return ah_fail(AH_EINVAL, "%s: %s: expected a list", section->what, section->sequence);
    json_array_foreach(list, i, item)
        AH_TRY(ah_load_steps(tokenizer, item, section));
    return 0;
}

int ah_load_steps(struct ah_tokenizer *tokenizer, const json_t *value, const struct ah_load_section *section)
{
    const char *name;
    char known[512] = "";
    size_t used = 0;
    if (!json_is_object(value))
        return ah_fail(AH_EINVAL, "%s: expected an object", section->what);
    AH_TRY(ah_load_text(value, section->what, "type", &name));
    if (!name)
        return ah_fail(AH_EINVAL, "%s: no type", section->what);
    for (const struct ah_load_type *type = section->types; type->name; type++) {
        size_t length = strlen(type->name);
        if (strcmp(type->name, name) == 0)
            return load_step(tokenizer, value, section, type);
        if (used + length + 3 < sizeof known) {
            memcpy(known + used, ", ", 2);
            memcpy(known + used + 2, type->name, length + 1);
            used += length + 2;
        }
    }
    return ah_fail(AH_EINVAL, "%s: '%.60s' is not supported (known: %s)", section->what, name, known + 2);
}

void ah_load_fallback(struct ah_model *model)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        int length = snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        model->fallback[byte] = ah_vocabulary_id(&model->whole, text, (size_t)length);
    }
}
