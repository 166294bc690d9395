/* The trace event format: complete events ("X") on the lanes of a process, which is the rank; times are microseconds of
 * the clock that all processes of the host share, so that files of several ranks can be merged. */
#include "io/trace_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status/status.h"
#include "io/writer.h"

/* Lanes of buckets: above the system's thread ids, and different in each rank, since viewers identify threads by their
 * number alone when files of several ranks are merged. */
enum { BUCKET_LANE = 1000000000, BUCKET_LANES = 4096, BUFFER = 64 * 1024 };

struct sink {
    struct ah_writer *writer;
    int status; /* the first failure */
    size_t used;
    char buffer[BUFFER];
};

static void trace_file_flush(struct sink *sink)
{
    if (sink->status == 0)
        sink->status = ah_writer_write(sink->writer, sink->buffer, sink->used);
    sink->used = 0;
}

static void trace_file_put(struct sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A short text. */
static void trace_file_put(struct sink *sink, const char *format, ...)
{
    va_list args;
    if (sink->used > BUFFER - 1024)
        trace_file_flush(sink);
    va_start(args, format);
    sink->used += (size_t)vsnprintf(sink->buffer + sink->used, BUFFER - sink->used, format, args);
    va_end(args);
}

static void put_string(struct sink *sink, const char *text)
{
    trace_file_put(sink, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            trace_file_put(sink, "\\%c", *at);
        else if (*at < ' ')
            trace_file_put(sink, "\\u%04x", *at);
        else
            trace_file_put(sink, "%c", *at);
    }
    trace_file_put(sink, "\"");
}

static void put_argument(struct sink *sink, int *count, const char *name, const char *text)
{
    if (!text)
        return;
    trace_file_put(sink, "%s\"%s\": ", (*count)++ ? ", " : ", \"args\": {", name);
    put_string(sink, text);
}

static void put_number(struct sink *sink, int *count, const char *name, int64_t value)
{
    if (value)
        trace_file_put(sink, "%s\"%s\": %lld", (*count)++ ? ", " : ", \"args\": {", name, (long long)value);
}

static void put_time(struct sink *sink, const char *name, int64_t ns)
{
    trace_file_put(sink, ", \"%s\": %lld.%03d", name, (long long)(ns / 1000), (int)(ns % 1000));
}

static int lane_of(const struct ah_trace_span *span, int rank)
{
    if (span->kind != AH_TRACE_BUCKET)
        return span->thread;
    return BUCKET_LANE + rank * BUCKET_LANES + span->thread % BUCKET_LANES;
}

static void put_span(struct sink *sink, const struct ah_trace_span *span, int rank)
{
    int arguments = 0;
    trace_file_put(sink, ",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": ",
                   ah_trace_kind_name((enum ah_trace_kind)span->kind));
    put_string(sink, span->name);
    trace_file_put(sink, ", \"pid\": %d, \"tid\": %d", rank, lane_of(span, rank));
    put_time(sink, "ts", span->begin_ns);
    put_time(sink, "dur", span->end_ns - span->begin_ns);
    put_argument(sink, &arguments, "shapes", span->shapes);
    put_argument(sink, &arguments, "site", span->site);
    put_argument(sink, &arguments, "module", span->module);
    put_argument(sink, &arguments, "kernel", span->kernel);
    put_number(sink, &arguments, "bytes", span->size);
    put_number(sink, &arguments, "memory", span->bytes);
    trace_file_put(sink, arguments ? "}}" : "}");
}

static void put_lanes(struct sink *sink, const struct ah_trace *trace, int rank)
{
    int before = -1;
    for (size_t i = 0; i < trace->count; i++) {
        const struct ah_trace_span *span = &trace->span[i];
        int lane = lane_of(span, rank);
        if (lane == before)
            continue;
        before = lane;
        trace_file_put(sink, ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, ", rank, lane);
        trace_file_put(sink, "\"args\": {\"name\": ");
        if (span->kind == AH_TRACE_BUCKET)
            trace_file_put(sink, "\"bucket %d\"}}", span->thread);
        else
            trace_file_put(sink, "\"%s\"}}", lane == (int)getpid() ? "script" : "helper");
    }
}

static void put_all(struct sink *sink, const struct ah_trace *trace, int rank)
{
    trace_file_put(sink,
                   "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"dropped\": %llu, \"texts_left_out\": %llu},\n",
                   (unsigned long long)trace->dropped, (unsigned long long)trace->left_out);
    trace_file_put(sink, "\"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, ", rank);
    trace_file_put(sink, "\"args\": {\"name\": \"rank %d (pid %d)\"}}", rank, (int)getpid());
    put_lanes(sink, trace, rank);
    for (size_t i = 0; i < trace->count; i++)
        put_span(sink, &trace->span[i], rank);
    trace_file_put(sink, "\n]}\n");
    trace_file_flush(sink);
}

int ah_trace_file_write(const struct ah_trace *trace, const char *path, int rank)
{
    struct sink sink;
    sink.status = 0;
    sink.used = 0;
    int status = ah_writer_open(&sink.writer, path);
    if (status < 0)
        return ah_fail_prefix(status, "profile");
    put_all(&sink, trace, rank);
    if (sink.status < 0) {
        ah_writer_abandon(sink.writer);
        return ah_fail_prefix(sink.status, "profile");
    }
    return ah_writer_commit(sink.writer);
}
