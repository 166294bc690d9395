/* Connection files: fields are checked before use, and nothing but the named address is bound. */
#include "jupyter/connection.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"

static const char *const port_names[AH_SOCKETS] = {"shell_port", "control_port", "stdin_port", "iopub_port", "hb_port"};

/* A field that is a text of visible characters; NULL after ah_fail. */
static const char *connection_text(const json_t *object, const char *name, size_t most)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) > most || strlen(text) != json_string_length(value)) {
        ah_fail(AH_EINVAL, "%s: expected a text of at most %zu bytes", name, most);
        return NULL;
    }
    return text;
}

static int connection_addresses(struct ah_jupyter_connection *out, const json_t *object)
{
    const char *transport = connection_text(object, "transport", 8);
    if (!transport)
        return AH_EINVAL;
    bool tcp = !strcmp(transport, "tcp");
    if (!tcp && strcmp(transport, "ipc"))
        return ah_fail(AH_EINVAL, "transport: expected tcp or ipc, got '%s'", transport);
    const char *ip = connection_text(object, "ip", 256);
    if (!ip)
        return AH_EINVAL;
    /* ZeroMQ reads more in an address: '*' binds every interface, ';' separates a source. */
    if (!*ip || (tcp && strcmp(ip, "localhost") && strspn(ip, "0123456789abcdefABCDEF.:[]") != strlen(ip)))
        return ah_fail(AH_EINVAL, "ip: expected an address, got '%s'", ip);
    for (int i = 0; i < AH_SOCKETS; i++) {
        const json_t *port = json_object_get(object, port_names[i]);
        json_int_t number = json_integer_value(port);
        if (!json_is_integer(port) || number < 1 || number > 65535)
            return ah_fail(AH_EINVAL, "%s: expected a number from 1 to 65535", port_names[i]);
        snprintf(out->address[i], sizeof out->address[i], tcp ? "tcp://%s:%d" : "ipc://%s-%d", ip, (int)number);
    }
    return 0;
}

static int connection_key(struct ah_jupyter_connection *out, const json_t *object)
{
    const char *scheme = json_object_get(object, "signature_scheme")
                             ? connection_text(object, "signature_scheme", 64) : "hmac-sha256";
    if (!scheme)
        return AH_EINVAL;
    if (strcmp(scheme, "hmac-sha256"))
        return ah_fail(AH_EINVAL, "signature_scheme: expected hmac-sha256, got '%s'", scheme);
    const char *key = connection_text(object, "key", AH_CONNECTION_KEY - 1);
    if (!key)
        return AH_EINVAL;
    out->key_bytes = strlen(key);
    memcpy(out->key, key, out->key_bytes + 1);
    return 0;
}

int ah_connection_parse(struct ah_jupyter_connection *out, const char *text, size_t bytes)
{
    json_error_t error;
    memset(out, 0, sizeof *out);
    json_t *object = json_loadb(text, bytes, 0, &error);
    if (!object)
        return ah_fail(AH_EINVAL, "expected JSON: line %d: not a value", error.line);
    int status = json_is_object(object) ? 0 : ah_fail(AH_EINVAL, "expected an object");
    if (status == 0)
        status = connection_addresses(out, object);
    if (status == 0)
        status = connection_key(out, object);
    json_decref(object);
    return status;
}

int ah_connection_read(struct ah_jupyter_connection *out, const char *path)
{
    char text[AH_CONNECTION_BYTES];
    FILE *file = fopen(path, "rbe");
    if (!file)
        return ah_fail(AH_EIO, "'%s': %s", path, strerror(errno));
    size_t bytes = fread(text, 1, sizeof text, file);
    int failed = ferror(file);
    fclose(file);
    if (failed)
        return ah_fail(AH_EIO, "'%s': cannot be read", path);
    if (bytes == sizeof text)
        return ah_fail(AH_EINVAL, "'%s': over %d bytes", path, AH_CONNECTION_BYTES - 1);
    int status = ah_connection_parse(out, text, bytes);
    return status < 0 ? ah_fail_prefix(status, "'%s'", path) : 0;
}
