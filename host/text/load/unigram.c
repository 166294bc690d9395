/* The model Unigram of a tokenizer.json: a list of texts with scores, whose places are the ids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"

static int load_scored(struct ah_model *model, const json_t *item, size_t id)
{
    const char *text = json_string_value(json_array_get(item, 0));
    const json_t *score = json_array_get(item, 1);
    if (!text || !json_is_number(score))
        return ah_fail(AH_EINVAL, "model: vocab: item %zu: expected a text and a score", id);
    model->score[id] = json_number_value(score);
    model->lowest = model->score[id] < model->lowest ? model->score[id] : model->lowest;
    return ah_vocabulary_add(&model->whole, text, strlen(text), (int64_t)id);
}

static int load_scores(struct ah_model *model, const json_t *value)
{
    const json_t *vocabulary = json_object_get(value, "vocab"), *item;
    size_t id;
    if (!json_is_array(vocabulary) || json_array_size(vocabulary) == 0)
        return ah_fail(AH_EINVAL, "model: vocab: expected a list of texts and scores");
    model->score = calloc(json_array_size(vocabulary), sizeof *model->score);
    AH_TRY_MEMORY(model->score, "out of memory");
    json_array_foreach(vocabulary, id, item)
        AH_TRY(load_scored(model, item, id));
    return 0;
}

int ah_load_unigram(struct ah_model *model, const json_t *value)
{
    const json_t *unknown = json_object_get(value, "unk_id");
    model->kind = AH_MODEL_UNIGRAM;
    model->lowest = INFINITY;
    AH_TRY(ah_load_flag(value, "model", "byte_fallback", false, &model->byte_fallback));
    AH_TRY(load_scores(model, value));
    ah_load_fallback(model);
    model->unknown = -1;
    if (!unknown || json_is_null(unknown))
        return 0;
    int64_t id = json_integer_value(unknown);
    if (!json_is_integer(unknown) || id < 0 || (uint64_t)id >= json_array_size(json_object_get(value, "vocab")))
        return ah_fail(AH_EINVAL, "model: unk_id: expected the place of a text of vocab");
    model->unknown = (int32_t)id;
    return 0;
}
