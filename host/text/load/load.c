/* tokenizer.json: the sections of the file, in the order in which they need each other. */
#include "text/load/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "text/unicode.h"

static int load_sections(struct ah_tokenizer *tokenizer, const json_t *root)
{
    static const struct {
        const char *name;
        int (*load)(struct ah_tokenizer *tokenizer, const json_t *value);
    } section[] = {
        {"normalizer", ah_load_normalizer}, {"pre_tokenizer", ah_load_splitter}, {NULL, NULL},
        {"added_tokens", ah_load_added}, {"post_processor", ah_load_post_processor}, {"decoder", ah_load_decoder},
    };
    for (size_t i = 0; i < sizeof section / sizeof *section; i++) {
        if (!section[i].name) {
            AH_TRY(ah_load_model(&tokenizer->model, json_object_get(root, "model")));
            continue;
        }
        const json_t *value = json_object_get(root, section[i].name);
        if (value && !json_is_null(value))
            AH_TRY(section[i].load(tokenizer, value));
        else if (strcmp(section[i].name, "post_processor") == 0)
            AH_TRY(ah_load_post_processor(tokenizer, NULL));
    }
    return 0;
}

int ah_tokenizer_read(struct ah_tokenizer **out, const char *json, size_t bytes)
{
    json_error_t error;
    *out = NULL;
    json_t *root = json_loadb(json, bytes, 0, &error);
    if (!root && error.line < 0) /* nothing was read wrongly */
        return ah_fail(AH_ENOMEM, "out of memory");
    if (!root)
        return ah_fail(AH_EINVAL, "line %d: no JSON: %s", error.line, error.text);
    ah_unicode_open();
    struct ah_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    int status = tokenizer ? pthread_mutex_init(&tokenizer->lock, NULL) : -1;
    if (status != 0) {
        free(tokenizer);
        json_decref(root);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    status = json_is_object(root) ? load_sections(tokenizer, root) : ah_fail(AH_EINVAL, "expected an object");
    json_decref(root);
    if (status < 0) {
        ah_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return 0;
}
