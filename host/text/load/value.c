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

int ah_load_by_type(struct ah_tokenizer *tokenizer, const json_t *value, const char *what,
                    const struct ah_load_type *types)
{
    const char *type;
    char known[512] = "";
    size_t used = 0;
    if (!json_is_object(value))
        return ah_fail(AH_EINVAL, "%s: expected an object", what);
    AH_TRY(ah_load_text(value, what, "type", &type));
    if (!type)
        return ah_fail(AH_EINVAL, "%s: no type", what);
    for (; types->name; types++) {
        size_t length = strlen(types->name);
        if (strcmp(types->name, type) == 0)
            return types->load(tokenizer, value);
        if (used + length + 3 < sizeof known) {
            memcpy(known + used, ", ", 2);
            memcpy(known + used + 2, types->name, length + 1);
            used += length + 2;
        }
    }
    return ah_fail(AH_EINVAL, "%s: '%.60s' is not supported (known: %s)", what, type, known + 2);
}

int ah_load_each(struct ah_tokenizer *tokenizer, const json_t *value, const char *what, const char *name,
                 const struct ah_load_type *types)
{
    const json_t *list = json_object_get(value, name), *item;
    size_t i;
    if (!json_is_array(list))
        return ah_fail(AH_EINVAL, "%s: %s: expected a list", what, name);
    json_array_foreach(list, i, item)
        AH_TRY(ah_load_by_type(tokenizer, item, what, types));
    return 0;
}

void ah_load_fallback(struct ah_model *model)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        int length = snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        model->fallback[byte] = ah_vocabulary_id(&model->whole, text, (size_t)length);
    }
}
