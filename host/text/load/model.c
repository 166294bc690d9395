/* The model's section of a tokenizer.json: WordPiece, BPE, and Unigram by its own file. */
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"
#include "text/unicode.h"

static int load_vocabulary(struct ah_model *model, const json_t *value)
{
    json_t *vocabulary = json_object_get(value, "vocab"), *id;
    const char *text;
    size_t prefix = model->prefix ? strlen(model->prefix) : 0;
    if (!json_is_object(vocabulary))
        return ah_fail(AH_EINVAL, "model: vocab: expected an object of texts and ids");
    json_object_foreach(vocabulary, text, id) {
        size_t length = strlen(text);
        if (!json_is_integer(id))
            return ah_fail(AH_EINVAL, "model: vocab: '%.40s': expected an id", text);
        AH_TRY(ah_vocabulary_add(&model->whole, text, length, json_integer_value(id)));
        if (prefix && length > prefix && memcmp(text, model->prefix, prefix) == 0)
            AH_TRY(ah_vocabulary_add(&model->inner, text + prefix, length - prefix, json_integer_value(id)));
    }
    return 0;
}

static int load_unknown(struct ah_model *model, const json_t *value, const char *fallback)
{
    const char *text;
    AH_TRY(ah_load_text(value, "model", "unk_token", &text));
    text = text ? text : fallback;
    model->unknown = text ? ah_vocabulary_id(&model->whole, text, strlen(text)) : -1;
    return !text || model->unknown >= 0
               ? 0
               : ah_fail(AH_EINVAL, "model: unk_token: '%.40s' is not in the vocabulary", text);
}

static int load_wordpiece(struct ah_model *model, const json_t *value)
{
    const json_t *most = json_object_get(value, "max_input_chars_per_word");
    const char *prefix;
    model->kind = AH_MODEL_WORDPIECE;
    AH_TRY(ah_load_text(value, "model", "continuing_subword_prefix", &prefix));
    model->prefix = strdup(prefix ? prefix : "##");
    AH_TRY_MEMORY(model->prefix, "out of memory");
    if (most && (!json_is_integer(most) || json_integer_value(most) < 0))
        return ah_fail(AH_EINVAL, "model: max_input_chars_per_word: expected a whole number");
    model->most_characters = most ? json_integer_value(most) : 100;
    AH_TRY(load_vocabulary(model, value));
    AH_TRY(load_unknown(model, value, "[UNK]"));
    if (*model->prefix)
        return 0;
    /* Without a prefix pieces inside of words are those of the whole vocabulary. */
    for (size_t i = 0; i < model->whole.count; i++) {
        const struct ah_vocabulary_entry *entry = &model->whole.entry[i];
        AH_TRY(ah_vocabulary_add(&model->inner, model->whole.text + entry->at, entry->length, entry->id));
    }
    return 0;
}

/* "left right", or a list of the two. */
static int read_merge(const json_t *item, const char *part[2], size_t length[2])
{
    const char *blank;
    if (json_is_array(item) && json_array_size(item) == 2 && json_is_string(json_array_get(item, 0)) &&
        json_is_string(json_array_get(item, 1))) {
        for (size_t k = 0; k < 2; k++) {
            part[k] = json_string_value(json_array_get(item, k));
            length[k] = strlen(part[k]);
        }
        return 0;
    }
    const char *text = json_string_value(item);
    if (!text || !(blank = strchr(text, ' ')) || strchr(blank + 1, ' '))
        return ah_fail(AH_EINVAL, "model: merges: expected two texts%s%.40s", text ? ", got " : "", text ? text : "");
    part[0] = text;
    length[0] = (size_t)(blank - text);
    part[1] = blank + 1;
    length[1] = strlen(blank + 1);
    return 0;
}

static int load_merge(struct ah_model *model, const json_t *item, uint32_t rank)
{
    const char *part[2] = {NULL, NULL};
    size_t length[2] = {0, 0};
    char both[512];
    AH_TRY(read_merge(item, part, length));
    if (length[0] + length[1] > sizeof both)
        return ah_fail(AH_EINVAL, "model: merges: a text of %zu bytes, expected at most %zu", length[0] + length[1],
                       sizeof both);
    memcpy(both, part[0], length[0]);
    memcpy(both + length[0], part[1], length[1]);
    int32_t left = ah_vocabulary_id(&model->whole, part[0], length[0]);
    int32_t right = ah_vocabulary_id(&model->whole, part[1], length[1]);
    int32_t id = ah_vocabulary_id(&model->whole, both, length[0] + length[1]);
    if (left < 0 || right < 0 || id < 0)
        return ah_fail(AH_EINVAL, "model: merges: '%.40s' and '%.40s': one of them or both together are not in the "
                       "vocabulary", part[0], part[1]);
    return ah_model_add_merge(model, left, right, rank, id);
}

static int load_model_refuse(const json_t *value)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix", NULL};
    for (int i = 0; texts[i]; i++) {
        const char *text;
        AH_TRY(ah_load_text(value, "model", texts[i], &text));
        if (text && *text)
            return ah_fail(AH_ENOTIMPL, "model: BPE: %s is not supported", texts[i]);
    }
    const json_t *dropout = json_object_get(value, "dropout");
    return dropout && !json_is_null(dropout) && json_number_value(dropout) != 0
               ? ah_fail(AH_ENOTIMPL, "model: BPE: dropout is not supported")
               : 0;
}

static int load_bpe(struct ah_model *model, const json_t *value)
{
    const json_t *merges = json_object_get(value, "merges"), *item;
    size_t rank;
    model->kind = AH_MODEL_BPE;
    AH_TRY(load_model_refuse(value));
    AH_TRY(ah_load_flag(value, "model", "fuse_unk", false, &model->fuse_unknown));
    AH_TRY(ah_load_flag(value, "model", "ignore_merges", false, &model->ignore_merges));
    AH_TRY(ah_load_flag(value, "model", "byte_fallback", false, &model->byte_fallback));
    AH_TRY(load_vocabulary(model, value));
    AH_TRY(load_unknown(model, value, NULL));
    ah_load_fallback(model);
    if (!json_is_array(merges))
        return ah_fail(AH_EINVAL, "model: merges: expected a list");
    json_array_foreach(merges, rank, item)
        AH_TRY(load_merge(model, item, (uint32_t)rank));
    for (int byte = 0; byte < 256; byte++) {
        unsigned char text[4];
        int length = ah_utf8_put(ah_byte_character((unsigned char)byte), text);
        model->byte_id[byte] = ah_vocabulary_id(&model->whole, (const char *)text, (size_t)length);
    }
    return 0;
}

int ah_load_model(struct ah_model *model, const json_t *value)
{
    const char *type;
    if (!json_is_object(value))
        return ah_fail(AH_EINVAL, "model: expected an object");
    AH_TRY(ah_load_text(value, "model", "type", &type));
    /* Old files have no type. */
    if (!type)
        type = json_object_get(value, "merges") ? "BPE" : json_object_get(value, "unk_id") ? "Unigram" : "WordPiece";
    if (strcmp(type, "BPE") == 0)
        return load_bpe(model, value);
    bool unigram = strcmp(type, "Unigram") == 0;
    if (!unigram && strcmp(type, "WordPiece") != 0)
        return ah_fail(AH_ENOTIMPL, "model: '%.60s' is not supported (known: WordPiece, BPE, Unigram)", type);
    if (model->byte_level)
        return ah_fail(AH_ENOTIMPL, "model: %s of byte level is not supported", type);
    return unigram ? ah_load_unigram(model, value) : load_wordpiece(model, value);
}
