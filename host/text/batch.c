/* Parts of the batch go to the threads of the one pool; each part takes an encoder. */
#include "text/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"

/* Bytes that make a thread's share: about 0.2 ms. */
#define SHARE 8192

struct job {
    struct ah_tokenizer *tokenizer;
    const struct ah_batch *batch;
    struct ah_encoding *rows;
    pthread_mutex_t lock;
    size_t failed; /* the first row that failed, `count` for none */
    int status;
    char text[400];
};

static int encode_row(const struct job *job, struct ah_encoder *encoder, size_t i, struct ah_encoding part[2])
{
    const struct ah_batch *batch = job->batch;
    struct ah_encoding *second = batch->second ? &part[1] : NULL;
    const struct ah_template *template = second ? &job->tokenizer->pair : &job->tokenizer->single;
    part[0].count = part[1].count = 0;
    AH_TRY(ah_tokenizer_encode(job->tokenizer, encoder, batch->first[i].text, batch->first[i].bytes, &part[0]));
    if (second)
        AH_TRY(ah_tokenizer_encode(job->tokenizer, encoder, batch->second[i].text, batch->second[i].bytes, second));
    int64_t specials = batch->specials ? ah_template_specials(template) : 0;
    if (batch->truncation)
        AH_TRY(ah_encoding_truncate(&part[0], second, batch->truncation, batch->most - specials, batch->cut_left));
    ah_tokenizer_trim(job->tokenizer, &part[0]);
    if (second)
        ah_tokenizer_trim(job->tokenizer, second);
    return ah_template_apply(template, &part[0], second, batch->specials, &job->rows[i]);
}

static void note_failure(struct job *job, size_t row, int status)
{
    pthread_mutex_lock(&job->lock);
    if (row < job->failed) {
        job->failed = row;
        job->status = status;
        strncpy(job->text, ah_error_text(), sizeof job->text - 1);
    }
    pthread_mutex_unlock(&job->lock);
}

static void encode_rows(void *context, int64_t begin, int64_t end)
{
    struct job *job = context;
    struct ah_encoder *encoder;
    struct ah_encoding part[2] = {{0}};
    int status = ah_encoder_take(job->tokenizer, &encoder);
    if (status < 0) {
        note_failure(job, (size_t)begin, status);
        return;
    }
    for (int64_t i = begin; i < end && status == 0; i++) {
        status = encode_row(job, encoder, (size_t)i, part);
        if (status < 0)
            note_failure(job, (size_t)i, status);
    }
    ah_encoding_close(&part[0]);
    ah_encoding_close(&part[1]);
    ah_encoder_give(job->tokenizer, encoder);
}

int ah_batch_encode(struct ah_tokenizer *tokenizer, const struct ah_batch *batch, struct ah_encoding *rows)
{
    struct job job = {.tokenizer = tokenizer, .batch = batch, .rows = rows, .failed = batch->count};
    size_t bytes = 1;
    if (batch->count == 0)
        return 0;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->first[i].bytes + (batch->second ? batch->second[i].bytes : 0);
    if (pthread_mutex_init(&job.lock, NULL) != 0)
        return ah_fail(AH_ENOMEM, "out of memory");
    size_t share = 1 + SHARE / (1 + bytes / batch->count);
    ah_parallel_for((int64_t)batch->count, (int64_t)share, encode_rows, &job);
    pthread_mutex_destroy(&job.lock);
    return job.status < 0 ? ah_fail(job.status, "%s", job.text) : 0;
}
