/* Parts of the batch run on the threads of the pool; each part uses an encoder, which owns its rows, so that the next
 * batch uses their memory again. */
#include "text/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "text/encoder.h"

/* Bytes that make a thread's share: about 0.2 ms. */
#define SHARE 8192

/* Tokens that an encoder keeps room for. */
#define KEPT_TOKENS (1 << 20)

struct job {
    struct ah_tokenizer *tokenizer;
    const struct ah_batch *batch;
    struct ah_rows_made *rows;
    pthread_mutex_t lock;
    size_t failed; /* the first row that failed, `count` for none */
    int status;
    char text[400];
};

/* A copy of tokens [begin, end) of a text: pieces have tokens in common, and places are trimmed piece by piece. */
static int copy_piece(const struct ah_encoding *text, int64_t begin, int64_t end, struct ah_encoding *piece)
{
    size_t count = (size_t)(end - begin);
    AH_TRY(ah_grow(&piece->at, count + 1, &piece->room, sizeof *piece->at));
    if (count > 0)
        memcpy(piece->at, text->at + begin, count * sizeof *piece->at);
    piece->count = count;
    return 0;
}

/* The row of piece i of the first text and piece k of the second. */
static int make_row(const struct job *job, struct ah_encoder *encoder, size_t text, const int64_t keep[2], int64_t i,
                    int64_t k)
{
    const struct ah_batch *batch = job->batch;
    struct ah_encoding *part = encoder->part_of, view[2] = {{0}};
    const struct ah_template *template = batch->second ? &job->tokenizer->pair : &job->tokenizer->single;
    for (int side = 0; side < (batch->second ? 2 : 1); side++) {
        int64_t begin, end;
        ah_pieces_place((int64_t)part[side].count, keep[side], batch->stride, batch->cut_left, side ? k : i, &begin,
                        &end);
        view[side] = (struct ah_encoding){.count = (size_t)(end - begin)};
        if (end > begin)
            view[side].at = part[side].at + begin;
        if (batch->overflow) {
            AH_TRY(copy_piece(&part[side], begin, end, &encoder->piece[side]));
            view[side] = encoder->piece[side];
        }
        ah_tokenizer_trim(job->tokenizer, &view[side]);
    }
    AH_TRY(ah_grow(&encoder->row, encoder->rows + 1, &encoder->row_room, sizeof *encoder->row));
    size_t from = encoder->made.count;
    AH_TRY(ah_template_apply(template, &view[0], batch->second ? &view[1] : NULL, batch->specials, &encoder->made));
    encoder->row[encoder->rows++] = (struct ah_encoder_row){from, encoder->made.count - from, text};
    return 0;
}

static int check_stride(const struct ah_batch *batch, const int64_t count[2], const int64_t keep[2])
{
    for (int side = 0; side < (batch->second ? 2 : 1); side++)
        if (keep[side] < count[side] && keep[side] > 0 && batch->stride >= keep[side])
            return ah_fail(AH_EINVAL, "stride: expected less than the %lld tokens that stay of a text, got %lld",
                           (long long)keep[side], (long long)batch->stride);
    return 0;
}

/* The rows of a text or pair: the first pieces, then, where overflowing tokens are requested, each other piece of the
 * first text with those of the second, and at last the first text's first with the second's others. */
static int make_rows(const struct job *job, struct ah_encoder *encoder, size_t text)
{
    const struct ah_batch *batch = job->batch;
    const struct ah_template *template = batch->second ? &job->tokenizer->pair : &job->tokenizer->single;
    int64_t keep[2], count[] = {(int64_t)encoder->part_of[0].count,
                                batch->second ? (int64_t)encoder->part_of[1].count : -1};
    int64_t specials = batch->specials ? ah_template_specials(template) : 0;
    AH_TRY(ah_truncation_keep(count[0], count[1], batch->truncation, batch->most - specials, keep));
    AH_TRY(check_stride(batch, count, keep));
    AH_TRY(make_row(job, encoder, text, keep, 0, 0));
    if (!batch->overflow)
        return 0;
    int64_t firsts = ah_pieces_count(count[0], keep[0], batch->stride);
    int64_t seconds = batch->second ? ah_pieces_count(count[1], keep[1], batch->stride) : 1;
    for (int64_t at = seconds; at < firsts * seconds; at++)
        AH_TRY(make_row(job, encoder, text, keep, at / seconds, at % seconds));
    for (int64_t k = 1; k < seconds; k++)
        AH_TRY(make_row(job, encoder, text, keep, 0, k));
    return 0;
}

static int encode_source(const struct job *job, struct ah_encoder *encoder, const struct ah_source *source,
                         struct ah_encoding *part)
{
    part->count = 0;
    if (!source->end)
        return ah_tokenizer_encode(job->tokenizer, encoder, source->text, source->bytes, part);
    for (size_t i = 0, from = 0; i < source->words; from = source->end[i++]) {
        size_t first = part->count;
        AH_TRY(ah_tokenizer_encode(job->tokenizer, encoder, source->text + from, source->end[i] - from, part));
        for (size_t k = first; k < part->count; k++)
            part->at[k].word = (int32_t)i;
    }
    return 0;
}

static int encode_text(const struct job *job, struct ah_encoder *encoder, size_t i)
{
    const struct ah_batch *batch = job->batch;
    AH_TRY(encode_source(job, encoder, &batch->first[i], &encoder->part_of[0]));
    if (batch->second)
        AH_TRY(encode_source(job, encoder, &batch->second[i], &encoder->part_of[1]));
    return make_rows(job, encoder, i);
}

static void note_failure(struct job *job, size_t row, int status)
{
    AH_LOCK_SCOPE(&job->lock);
    if (row < job->failed) {
        job->failed = row;
        job->status = status;
        strncpy(job->text, ah_error_text(), sizeof job->text - 1);
    }
}

/* Keep the encoder with the rows, in the order of its texts. */
static void batch_hold(struct job *job, struct ah_encoder *encoder)
{
    AH_LOCK_SCOPE(&job->lock);
    struct ah_encoder **at = &job->rows->held;
    while (*at && (*at)->begin < encoder->begin)
        at = &(*at)->next;
    encoder->next = *at;
    *at = encoder;
}

static void encode_texts(void *context, int64_t begin, int64_t end)
{
    struct job *job = context;
    struct ah_encoder *encoder;
    int status = ah_encoder_take(job->tokenizer, &encoder);
    if (status < 0) {
        note_failure(job, (size_t)begin, status);
        return;
    }
    encoder->begin = (size_t)begin;
    encoder->rows = encoder->made.count = 0;
    for (int64_t i = begin; i < end && status == 0; i++) {
        status = encode_text(job, encoder, (size_t)i);
        if (status < 0)
            note_failure(job, (size_t)i, status);
    }
    batch_hold(job, encoder);
}

static int list_rows(struct ah_rows_made *rows)
{
    size_t count = 0, at = 0;
    for (const struct ah_encoder *encoder = rows->held; encoder; encoder = encoder->next)
        count += encoder->rows;
    rows->row = malloc((count + 1) * sizeof *rows->row);
    AH_TRY_MEMORY(rows->row, "out of memory");
    for (const struct ah_encoder *encoder = rows->held; encoder; encoder = encoder->next)
        for (size_t i = 0; i < encoder->rows; i++) {
            const struct ah_encoder_row *row = &encoder->row[i];
            rows->row[at++] = (struct ah_row){encoder->made.at + row->from, row->count, row->text};
        }
    rows->count = count;
    return 0;
}

int ah_batch_encode(struct ah_tokenizer *tokenizer, const struct ah_batch *batch, struct ah_rows_made *rows)
{
    struct job job = {.tokenizer = tokenizer, .batch = batch, .rows = rows, .failed = batch->count};
    size_t bytes = 1;
    *rows = (struct ah_rows_made){.tokenizer = tokenizer};
    if (batch->count == 0)
        return 0;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->first[i].bytes + (batch->second ? batch->second[i].bytes : 0);
    if (pthread_mutex_init(&job.lock, NULL) != 0)
        return ah_fail(AH_ENOMEM, "out of memory");
    size_t share = 1 + SHARE / (1 + bytes / batch->count);
    ah_parallel_for((int64_t)batch->count, (int64_t)share, encode_texts, &job);
    pthread_mutex_destroy(&job.lock);
    return job.status < 0 ? ah_fail(job.status, "%s", job.text) : list_rows(rows);
}

void ah_batch_close(struct ah_rows_made *rows)
{
    for (struct ah_encoder *encoder = rows->held, *next; encoder; encoder = next) {
        next = encoder->next;
        if (encoder->made.room > KEPT_TOKENS)
            ah_encoding_close(&encoder->made);
        ah_encoder_give(rows->tokenizer, encoder);
    }
    free(rows->row);
    *rows = (struct ah_rows_made){0};
}
