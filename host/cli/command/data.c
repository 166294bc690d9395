/* accelhost data NAME [--dir DIR]: fetch a public data set by the curl program and verify its files. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "base/numeric/sha256.h"
#include "base/status/nearest.h"
#include "base/status/status.h"
#include "base/status/version.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"

enum { FILES = 4, MIRRORS = 2, MAX_PATH = 4096 };

static const char most_bytes[] = "67108864"; /* of a file: the largest has 26 MB */

struct set {
    const char *name;
    const char *summary;
    const char *replicas[MIRRORS + 1]; /* in the order in which they are tried */
    struct {
        const char *name, *hash;
    } files[FILES];
};

static const struct set sets[] = {
    {
        "mnist",
        "60,000 + 10,000 handwritten digits, 12 MB",
        {"https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"},
        {
            {"train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
            {"train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
            {"t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
            {"t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
        },
    },
    {
        "fashion_mnist",
        "60,000 + 10,000 pictures of clothes in MNIST's format, 31 MB",
        {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"},
        {
            {"train-images-idx3-ubyte.gz", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
            {"train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
            {"t10k-images-idx3-ubyte.gz", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
            {"t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
        },
    },
};
enum { SETS = sizeof sets / sizeof *sets };

extern char **environ;

static void print_help(void)
{
    ah_help_print("usage: accelhost data NAME [--dir DIR] [--mirror URL]\n\n"
                  "Downloads a public data set with the curl program and checks its SHA-256 sums.\n\n");
    for (int i = 0; i < SETS; i++)
        ah_help_row(sets[i].name, sets[i].summary);
    putchar('\n');
    ah_help_row("--dir DIR", "where the files go (default: $ACCELHOST_DATA/NAME, else data/NAME)");
    ah_help_row("--mirror URL", "fetch from this folder instead of the known ones");
}

static const struct set *find_set(const char *name)
{
    for (int i = 0; i < SETS; i++) {
        if (!strcmp(sets[i].name, name))
            return &sets[i];
    }
    return NULL;
}

static int no_curl(void)
{
    return ah_fail(AH_ENOTIMPL, "the curl program is not installed");
}

static int data_curl(const char *url, const char *to)
{
    bool terminal = isatty(STDERR_FILENO);
    const char *const protocols = strncmp(url, "file://", 7) ? "=https,http" : "=file";
    const char *const words[] = {
        "curl", "--fail", "--location", "--proto", protocols, "--proto-redir", "=https,http", "--max-filesize",
        most_bytes, "--retry", "2", "--connect-timeout", "20", terminal ? "--progress-bar" : "-sS", "--output", to,
        "--url", url, NULL,
    };
    pid_t child;
    int status, failed = posix_spawnp(&child, "curl", NULL, NULL, (char *const *)words, environ);
    if (failed == ENOENT)
        return no_curl();
    if (failed)
        return ah_fail(AH_EIO, "cannot start curl: %s", strerror(failed));
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return ah_fail(AH_EIO, "cannot wait for curl: %s", strerror(errno));
    }
    if (WIFSIGNALED(status))
        return ah_fail(AH_EINTR, "curl was stopped by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == 127)
        return no_curl();
    if (WEXITSTATUS(status))
        return ah_fail(AH_EIO, "%s: download failed (curl ended with %d; is there a network?)", url,
                       WEXITSTATUS(status));
    return 0;
}

/* Create an empty file with an unpredictable name, and with the access rights of any new file. */
static int open_partial(const char *path, char partial[MAX_PATH])
{
    mode_t mask = umask(0);
    umask(mask);
    if (snprintf(partial, MAX_PATH, "%s.part-XXXXXX", path) >= MAX_PATH)
        return ah_fail(AH_EINVAL, "the folder's name is longer than %d bytes", MAX_PATH - 1);
    int fd = mkostemp(partial, O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0666 & ~mask)) {
        int status = ah_fail(AH_EIO, "cannot create %s: %s", partial, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(partial);
        }
        return status;
    }
    close(fd);
    return 0;
}

static int fetch_from(const char *mirror, const char *name, const char *hash, const char *path)
{
    char url[MAX_PATH], partial[MAX_PATH], found[AH_SHA256_TEXT];
    const char *slash = mirror[0] && mirror[strlen(mirror) - 1] == '/' ? "" : "/";
    if (snprintf(url, sizeof url, "%s%s%s", mirror, slash, name) >= (int)sizeof url)
        return ah_fail(AH_EINVAL, "the address is longer than %d bytes", MAX_PATH - 1);
    AH_TRY(open_partial(path, partial));
    int status = data_curl(url, partial);
    if (status == 0)
        status = ah_sha256_file(partial, found);
    if (status == 0 && strcmp(found, hash))
        status = ah_fail(AH_EIO, "%s: expected the SHA-256 sum %s, got %s", url, hash, found);
    if (status == 0 && rename(partial, path))
        status = ah_fail(AH_EIO, "cannot rename %s: %s", partial, strerror(errno));
    if (status < 0)
        unlink(partial);
    return status;
}

static int data_fetch(const struct set *set, int file, const char *dir, const char *mirror)
{
    const char *name = set->files[file].name, *hash = set->files[file].hash;
    char path[MAX_PATH], found[AH_SHA256_TEXT];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return ah_fail(AH_EINVAL, "the folder's name is longer than %d bytes", MAX_PATH - 1);
    if (access(path, F_OK) == 0) {
        AH_TRY(ah_sha256_file(path, found));
        if (!strcmp(found, hash)) {
            printf("%s: here already\n", path);
            return 0;
        }
        printf("%s: not the known file, fetching it again\n", path);
    }
    if (mirror) {
        AH_TRY(fetch_from(mirror, name, hash, path));
    } else {
        int status = -1;
        for (int m = 0; set->replicas[m] && status < 0; m++) {
            if (m)
                fprintf(stderr, "accelhost data: %s; trying the next mirror\n", ah_error_text());
            status = fetch_from(set->replicas[m], name, hash, path);
            if (status == AH_EINTR || status == AH_ENOTIMPL)
                break;
        }
        AH_TRY(status);
    }
    printf("%s: fetched, sum is right\n", path);
    return 0;
}

static void report_failure(const struct set *set, const char *dir, int status)
{
    fflush(stdout);
    fprintf(stderr, "accelhost data: %s\n", ah_error_text());
    if (status == AH_EINTR)
        return;
    fprintf(stderr, "accelhost data: without a network, copy these files into %s:", dir);
    for (int file = 0; file < FILES; file++)
        fprintf(stderr, "%s %s", file ? "," : "", set->files[file].name);
    fputc('\n', stderr);
}

int ah_cli_data(int argc, char **argv)
{
    static const char *const words[] = {"--dir", "--mirror", "--help", NULL};
    const struct set *set = NULL;
    const char *dir = NULL, *mirror = NULL, *root = getenv("ACCELHOST_DATA");
    char made[MAX_PATH];
    for (int i = 0; i < argc; i++) {
        const char **value = !strcmp(argv[i], "--dir") ? &dir : !strcmp(argv[i], "--mirror") ? &mirror : NULL;
        if (!strcmp(argv[i], "--version")) {
            puts("accelhost " AH_VERSION);
            return 0;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help();
            return 0;
        }
        if (value && i + 1 == argc)
            return ah_usage("data", "%s expects a value", argv[i]);
        if (value) {
            *value = argv[++i];
        } else if (argv[i][0] == '-') {
            const char *near = ah_nearest(argv[i], words);
            return ah_usage("data", "unknown option '%s'%s%s%s", argv[i], near ? " (did you mean '" : "",
                            near ? near : "", near ? "'?)" : "");
        } else if (set) {
            return ah_usage("data", "unexpected argument '%s'", argv[i]);
        } else if (!(set = find_set(argv[i]))) {
            return ah_usage("data", "unknown data set '%s' (known: mnist, fashion_mnist)", argv[i]);
        }
    }
    if (!set)
        return ah_usage("data", "expected the name of a data set (known: mnist, fashion_mnist)");
    if (!dir) {
        if (snprintf(made, sizeof made, "%s/%s", root && *root ? root : "data", set->name) >= (int)sizeof made)
            return ah_usage("data", "$ACCELHOST_DATA is longer than %d bytes", MAX_PATH - 1);
        dir = made;
    }
    int status = ah_folder_make(dir);
    for (int file = 0; file < FILES && status == 0; file++) {
        fflush(stdout);
        status = data_fetch(set, file, dir, mirror);
    }
    if (status < 0)
        report_failure(set, dir, status);
    return status < 0;
}
