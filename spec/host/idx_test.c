#include "test.h"

#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "data/idx.h"

static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                       0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 4, 7, 2, 1, 0};

static size_t compress_to(unsigned char *to, size_t room, const void *from, size_t count)
{
    z_stream zip = {0};
    deflateInit2(&zip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    zip.next_in = (unsigned char *)from;
    zip.avail_in = (unsigned)count;
    zip.next_out = to;
    zip.avail_out = (unsigned)room;
    deflate(&zip, Z_FINISH);
    size_t made = room - zip.avail_out;
    deflateEnd(&zip);
    return made;
}

AH_TEST(idx_reads_images_and_labels)
{
    struct ah_tensor *tensor = NULL;
    CHECK_OK(ah_idx_parse(&tensor, images, sizeof images, AH_IDX_IMAGES));
    REQUIRE(tensor);
    CHECK(tensor->dtype == AH_U8 && tensor->ndim == 3);
    CHECK(tensor->size[0] == 2 && tensor->size[1] == 2 && tensor->size[2] == 3);
    CHECK(ah_tensor_get_int(tensor, 0) == 1 && ah_tensor_get_int(tensor, 11) == 255);
    ah_tensor_release(tensor);
    CHECK_OK(ah_idx_parse(&tensor, labels, sizeof labels, AH_IDX_LABELS));
    CHECK(tensor->ndim == 1 && tensor->size[0] == 4 && ah_tensor_get_int(tensor, 1) == 2);
    ah_tensor_release(tensor);
    CHECK_OK(ah_idx_parse(&tensor, images, sizeof images, AH_IDX_ANY));
    ah_tensor_release(tensor);
}

AH_TEST(idx_reads_gzip)
{
    unsigned char packed[512];
    size_t count = compress_to(packed, sizeof packed, images, 10);
    count += compress_to(packed + count, sizeof packed - count, images + 10, sizeof images - 10); /* two members */
    struct ah_tensor *tensor = NULL;
    CHECK_OK(ah_idx_parse(&tensor, packed, count, AH_IDX_IMAGES));
    REQUIRE(tensor);
    CHECK(memcmp(ah_tensor_data(tensor), images + 16, 12) == 0);
    ah_tensor_release(tensor);
}

AH_TEST(idx_reads_an_empty_set)
{
    static const unsigned char none[] = {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 28};
    struct ah_tensor *tensor = NULL;
    CHECK_OK(ah_idx_parse(&tensor, none, sizeof none, AH_IDX_IMAGES));
    REQUIRE(tensor);
    CHECK(tensor->numel == 0 && tensor->size[1] == 28);
    ah_tensor_release(tensor);
}

AH_TEST(idx_reports_malformed_files)
{
    struct ah_tensor *tensor = NULL;
    unsigned char bytes[64];
    CHECK_FAILS(ah_idx_parse(&tensor, labels, sizeof labels, AH_IDX_IMAGES), AH_EIO,
                "expected magic 2051 (images), got 2049 (labels)");
    CHECK_FAILS(ah_idx_parse(&tensor, images, 3, AH_IDX_ANY), AH_EIO, "expected an IDX header, got 3 bytes");
    CHECK_FAILS(ah_idx_parse(&tensor, images, 0, AH_IDX_ANY), AH_EIO, "got 0 bytes");
    CHECK_FAILS(ah_idx_parse(&tensor, images, 10, AH_IDX_ANY), AH_EIO, "truncated: the header has 10 of 16 bytes");
    CHECK_FAILS(ah_idx_parse(&tensor, images, sizeof images - 1, AH_IDX_ANY), AH_EIO, "truncated");
    memcpy(bytes, images, sizeof images);
    bytes[sizeof images] = 0;
    CHECK_FAILS(ah_idx_parse(&tensor, bytes, sizeof images + 1, AH_IDX_ANY), AH_EIO, "trailing bytes");
    bytes[2] = 13;
    CHECK_FAILS(ah_idx_parse(&tensor, bytes, sizeof images, AH_IDX_ANY), AH_EIO, "got type 13");
    bytes[2] = 8;
    bytes[3] = 9;
    CHECK_FAILS(ah_idx_parse(&tensor, bytes, sizeof images, AH_IDX_ANY), AH_EIO, "expected 1 to 4 dimensions, got 9");
    CHECK(!tensor);
}

AH_TEST(idx_refuses_sizes_that_the_file_cannot_hold)
{
    static const unsigned char huge[] = {0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1};
    static const unsigned char large[] = {0, 0, 8, 1, 127, 255, 255, 255, 1};
    struct ah_tensor *tensor = NULL;
    unsigned char packed[128];
    CHECK_FAILS(ah_idx_parse(&tensor, huge, sizeof huge, AH_IDX_IMAGES), AH_EIO,
                "more than fits into 17 bytes of file");
    CHECK_FAILS(ah_idx_parse(&tensor, large, sizeof large, AH_IDX_ANY), AH_EIO, "truncated");
    size_t count = compress_to(packed, sizeof packed, large, sizeof large);
    CHECK_FAILS(ah_idx_parse(&tensor, packed, count, AH_IDX_ANY), AH_EIO, "truncated");
    CHECK(!tensor);
}

AH_TEST(idx_finds_damage_in_gzip_data)
{
    unsigned char packed[128], bad[128];
    size_t count = compress_to(packed, sizeof packed, images, sizeof images);
    struct ah_tensor *tensor = NULL;
    for (size_t cut = 2; cut < count; cut++)
        CHECK(ah_idx_parse(&tensor, packed, cut, AH_IDX_IMAGES) == AH_EIO);
    CHECK(strstr(ah_error_text(), "ends early"));
    memcpy(bad, packed, count);
    bad[count - 5] ^= 1; /* the checksum */
    CHECK_FAILS(ah_idx_parse(&tensor, bad, count, AH_IDX_IMAGES), AH_EIO, "damaged gzip data");
    memcpy(bad, packed, count);
    bad[count] = 9;
    CHECK_FAILS(ah_idx_parse(&tensor, bad, count + 1, AH_IDX_IMAGES), AH_EIO, "trailing bytes");
    count = compress_to(packed, sizeof packed, images, sizeof images - 2);
    CHECK_FAILS(ah_idx_parse(&tensor, packed, count, AH_IDX_IMAGES), AH_EIO,
                "truncated: expected 12 bytes of data for (2, 2, 3), got 10");
    CHECK(!tensor);
}

AH_TEST(idx_reads_files_and_names_them_in_errors)
{
    char path[] = "/tmp/accelhost-idx-XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(write(file, labels, sizeof labels) == (ssize_t)sizeof labels);
    close(file);
    struct ah_tensor *tensor = NULL;
    CHECK_OK(ah_idx_read(&tensor, path, AH_IDX_LABELS));
    CHECK(tensor && tensor->numel == 4);
    ah_tensor_release(tensor);
    char expected[64];
    snprintf(expected, sizeof expected, "%s: expected magic 2051", path + 5);
    CHECK_FAILS(ah_idx_read(&tensor, path, AH_IDX_IMAGES), AH_EIO, expected);
    CHECK(strncmp(ah_error_text(), expected, strlen(expected)) == 0);
    unlink(path);
    CHECK_FAILS(ah_idx_read(&tensor, path, AH_IDX_LABELS), AH_EIO, "cannot open: No such file");
    CHECK_FAILS(ah_idx_read(&tensor, "/", AH_IDX_LABELS), AH_EIO, "not a file");
}
