/* Collectives and messages, through the chunks and boxes of a communicator. A device's memory is held only while bytes
 * are copied, so that ranks of one process do not wait for each other's locks. */
#include "nccl.h"

#include <algorithm>
#include <string.h>

namespace sim
{
size_t size_of_nccl(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return sizes[type];
}

template <class T> static T join(int op, T a, T b)
{
    switch (op) {
    case ncclProd:
        return (T)(a * b);
    case ncclMax:
        return b > a ? b : a;
    case ncclMin:
        return b < a ? b : a;
    default:
        return (T)(a + b);
    }
}

/* Items of T, computed as C. */
template <class T, class C, class Load, class Store>
static void combine_as(int op, char *to, const char *from, size_t step, int n, size_t count, Load load, Store store)
{
    for (size_t i = 0; i < count; i++) {
        C total = load(reinterpret_cast<const T *>(from)[i]);
        for (int r = 1; r < n; r++)
            total = join<C>(op, total, load(reinterpret_cast<const T *>(from + (size_t)r * step)[i]));
        reinterpret_cast<T *>(to)[i] = store(op == ncclAvg ? (C)(total / (C)n) : total);
    }
}

template <class T> static void combine_plain(int op, char *to, const char *from, size_t step, int n, size_t count)
{
    auto same = [](T x) { return x; };
    combine_as<T, T>(op, to, from, step, n, count, same, same);
}

template <class T> static void combine_half(int op, char *to, const char *from, size_t step, int n, size_t count)
{
    combine_as<T, float>(op, to, from, step, n, count, [](T x) { return to_float(x); }, from_float<T>);
}

void combine(int type, int op, char *to, const char *from, size_t step, int n, size_t count)
{
    typedef void (*Function)(int, char *, const char *, size_t, int, size_t);
    static const Function functions[] = {
        combine_plain<int8_t>,   combine_plain<uint8_t>, combine_plain<int32_t>, combine_plain<uint32_t>,
        combine_plain<int64_t>,  combine_plain<uint64_t>, combine_half<half_t>,  combine_plain<float>,
        combine_plain<double>,   combine_half<bf16_t>};
    functions[type](op, to, from, step, n, count);
}

static void bring(Link &link, const char *from, size_t bytes)
{
    Open open(link.context);
    memcpy(link.chunk(link.rank), from, bytes);
}

/* One round: `from` of those that `brings`, at most a chunk, and after the meeting `take`. */
template <class Take> static bool round(Link &link, bool brings, const char *from, size_t bytes, Take take)
{
    if (brings)
        bring(link, from, bytes);
    if (!link.arrive())
        return false;
    {
        Open open(link.context);
        take();
    }
    return link.arrive();
}

/* Every rank sends `from` (or only the root, of a broadcast); `target` reduces them. */
static bool reduce_to(Link &link, const Move &move, const char *from, char *to, bool target)
{
    size_t item = size_of_nccl(move.type), bytes = move.count * item;
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t part = std::min(bytes - at, (size_t)CHUNK);
        bool fine = round(link, true, from + at, part, [&] {
            if (target)
                combine(move.type, move.op, to + at, link.chunk(0), CHUNK, link.ranks, part / item);
        });
        if (!fine)
            return false;
    }
    return true;
}

static bool scatter(Link &link, const Move &move)
{
    size_t bytes = move.count * size_of_nccl(move.type);
    for (int r = 0; r < link.ranks; r++)
        if (!reduce_to(link, move, move.from + (size_t)r * bytes, move.to, r == link.rank))
            return false;
    return true;
}

static bool gather(Link &link, const Move &move)
{
    size_t bytes = move.count * size_of_nccl(move.type);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t part = std::min(bytes - at, (size_t)CHUNK);
        bool fine = round(link, true, move.from + at, part, [&] {
            for (int r = 0; r < link.ranks; r++)
                memcpy(move.to + (size_t)r * bytes + at, link.chunk(r), part);
        });
        if (!fine)
            return false;
    }
    return true;
}

static bool broadcast(Link &link, const Move &move)
{
    size_t bytes = move.count * size_of_nccl(move.type);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t part = std::min(bytes - at, (size_t)CHUNK);
        bool fine = round(link, link.rank == move.root, move.from + at, part,
                          [&] { memcpy(move.to + at, link.chunk(move.root), part); });
        if (!fine)
            return false;
    }
    return true;
}

static bool collect(Link &link, const Move &move)
{
    if (!link.post({move.call, move.type, move.op, move.root, move.count}))
        return false;
    switch (move.call) {
    case Move::ALL_GATHER:
        return gather(link, move);
    case Move::REDUCE_SCATTER:
        return scatter(link, move);
    case Move::BROADCAST:
        return broadcast(link, move);
    default:
        return reduce_to(link, move, move.from, move.to, move.call == Move::ALL_REDUCE || move.root == link.rank);
    }
}

/* A message under way. */
struct Message {
    const Move *move;
    size_t bytes, at;
    Box *box;
};

/* Move the next part of a message; return whether there was one. */
static bool advance(Link &link, Message &message)
{
    Box &box = *message.box;
    size_t part = std::min(message.bytes - message.at, (size_t)BOX);
    bool sends = message.move->call == Move::SEND;
    if ((box.filled > box.emptied) == sends)
        return false;
    Open open(link.context);
    if (sends)
        memcpy(box.bytes, message.move->from + message.at, part);
    else
        memcpy(message.move->to + message.at, box.bytes, part);
    message.at += part;
    ++(sends ? box.filled : box.emptied);
    return true;
}

/* Has its peer left a message without its other half? */
static void look_after(Link &link, Message &message)
{
    if (link.is_gone(message.move->root) && !advance(link, message))
        link.lose(message.move->root);
}

static bool exchange(Link &link, std::vector<Message> messages)
{
    for (unsigned turn = 0; !messages.empty(); turn++) {
        bool moved = false;
        std::vector<const Box *> busy[2]; /* a pair's messages are sent one after another */
        for (Message &message : messages) {
            auto &before = busy[message.move->call == Move::SEND];
            if (std::find(before.begin(), before.end(), message.box) != before.end())
                continue;
            before.push_back(message.box);
            moved = advance(link, message) || moved;
            if (!moved && turn % 64 == 63)
                look_after(link, message);
        }
        messages.erase(std::remove_if(messages.begin(), messages.end(),
                                      [](const Message &message) { return message.at == message.bytes; }),
                       messages.end());
        if (!moved && !link.pause())
            return false;
    }
    return true;
}

void carry_out_moves(Link &link, const std::vector<Move> &moves)
{
    std::vector<Message> messages;
    for (const Move &move : moves) {
        size_t bytes = move.count * size_of_nccl(move.type);
        if (!bytes)
            continue;
        if (fault_now(FAULT_NCCL)) {
            link.fail(ncclSystemError, "a call of NCCL failed, as ACCELHOST_SIM_FAIL asked");
            link.wait_for_abort();
            return;
        }
        if (move.call == Move::SEND)
            messages.push_back({&move, bytes, 0, link.box(link.rank, move.root)});
        else if (move.call == Move::RECEIVE)
            messages.push_back({&move, bytes, 0, link.box(move.root, link.rank)});
        else if (!collect(link, move))
            return;
    }
    exchange(link, messages);
}
} // namespace sim
