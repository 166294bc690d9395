/* From ids back to text. */
#include <stdlib.h>

#include "base/status/status.h"
#include "text/tokenizer.h"

static int decode_tokens(const struct ah_tokenizer *tokenizer, const int64_t *ids, size_t count, bool skip_special,
                         struct ah_decoded *tokens)
{
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *token = ah_tokenizer_token(tokenizer, ids[i], &length);
        if (!token || (skip_special && ah_tokenizer_is_special(tokenizer, ids[i])))
            continue;
        if (tokenizer->decoders == 0 && tokens->count > 0)
            AH_TRY(ah_decoded_append(tokens, " ", 1));
        AH_TRY(ah_decoded_append(tokens, token, length));
        AH_TRY(ah_decoded_end(tokens));
    }
    return ah_decoder_apply(tokenizer->decoder, tokenizer->decoders, tokens);
}

int ah_tokenizer_decode(const struct ah_tokenizer *tokenizer, const int64_t *ids, size_t count, bool skip_special,
                        char **out, size_t *bytes)
{
    struct ah_decoded tokens = {0};
    int status = decode_tokens(tokenizer, ids, count, skip_special, &tokens);
    *out = NULL;
    *bytes = 0;
    if (status == 0) {
        *out = tokens.text.at;
        *bytes = tokens.text.bytes;
        tokens.text.at = NULL;
    }
    ah_decoded_close(&tokens);
    return status;
}
