-- The patterns by which threads and ranks share memory (the table in host/comm/README.md), as litmus tests. Each
-- pattern has no bad outcome with its orders, and has one with any of them weakened, so that each order is needed.
local model = require "spec.support.memory_model"

local load, store, add, when = model.load, model.store, model.add, model.when

-- The pattern's threads for given orders: bad outcomes never with `orders`, but with each of `weakened`.
local function check(threads, bad, orders, weakened)
  local count, ends = model.count(threads(orders), bad)
  assert.equal(0, count)
  assert.is_true(ends > 1)
  for name, order in pairs(weakened) do
    local weak = setmetatable({[name] = order or nil}, {__index = function(_, key)
      return key ~= name and orders[key] or nil
    end})
    assert.is_true(model.count(threads(weak), bad) > 0, name .. " may be weaker")
  end
end

describe("the memory model", function()
  it("has the outcomes of the literature", function()
    -- Message passing, store buffering, coherence, independent reads of independent writes.
    local mp = {{store("x", 1), store("y", 1)}, {load("a", "y"), load("b", "x")}}
    assert.is_true(model.count(mp, function(r) return r.a == 1 and r.b == 0 end) > 0)
    local sb = {{store("x", 1, "release"), load("a", "y", "acquire")},
      {store("y", 1, "release"), load("b", "x", "acquire")}}
    assert.is_true(model.count(sb, function(r) return r.a == 0 and r.b == 0 end) > 0)
    local corr = {{store("x", 1), store("x", 2)}, {load("a", "x"), load("b", "x")}}
    assert.equal(0, (model.count(corr, function(r) return r.a > r.b end)))
    local iriw = {{store("x", 1, "seq_cst")}, {store("y", 1, "seq_cst")},
      {load("a", "x", "seq_cst"), load("b", "y", "seq_cst")}, {load("c", "y", "seq_cst"), load("d", "x", "seq_cst")}}
    assert.equal(0, (model.count(iriw, function(r) return r.a == 1 and r.b == 0 and r.c == 1 and r.d == 0 end)))
  end)
end)

describe("shared memory is ordered", function()
  it("for a counter that announces a call record or staged data", function()
    check(function(o)
      return {{store("data", 1), store("counter", 1, o.writer)},
        {load("seen", "counter", o.reader), load("read", "data")}}
    end, function(r) return r.seen == 1 and r.read == 0 end,
      {writer = "release", reader = "acquire"}, {writer = false, reader = false})
  end)

  it("for a buffer that is overwritten when its reader has advanced its counter", function()
    check(function(o)
      return {{load("read", "data"), store("done", 1, o.reader)},
        {load("seen", "done", o.writer), when(function(r) return r.seen == 1 end), store("data", 2)}}
    end, function(r) return r.read == 2 end, {reader = "release", writer = "acquire"}, {})
  end)

  it("for a counter that is stored twice, the second value being read for the first", function()
    check(function(o)
      return {{store("data", 1), store("counter", 1, "release"), store("counter", 2, o.second)},
        {load("seen", "counter", "acquire"), load("read", "data")}}
    end, function(r) return r.seen == 2 and r.read == 0 end, {second = "release"}, {second = false})
  end)

  it("for a waiter that counts itself among the sleepers and a writer that wakes them", function()
    -- Sleeping without a wake-up: the waiter has read the old counter and the writer no sleeper.
    check(function(o)
      return {{store("counter", 1, o.advance), load("sleepers_seen", "sleepers", o.look)},
        {add("before", "sleepers", 1, o.count), load("seen", "counter", o.check)}}
    end, function(r) return r.sleepers_seen == 0 and r.seen == 0 end,
      {advance = "seq_cst", look = "seq_cst", count = "seq_cst", check = "seq_cst"},
      {advance = "release", look = "acquire", count = "acq_rel", check = "acquire"})
  end)

  it("for a progress thread that reads the changes before the attending rank", function()
    -- The thread goes to sleep on a change that the attending rank has counted already.
    local function program(first)
      local thread = {load("changes", "changes", "seq_cst"), load("attended", "attended", "seq_cst")}
      if not first then thread[1], thread[2] = thread[2], thread[1] end
      thread[3] = add("before", "sleepers", 1, "seq_cst")
      thread[4] = load("now", "changes", "seq_cst")
      return {{store("attended", 1, "seq_cst"), add("old", "changes", 1, "seq_cst"),
        load("sleepers", "sleepers", "seq_cst")}, thread}
    end
    local function asleep(r) return r.attended == 0 and r.now == r.changes and r.sleepers == 0 end
    assert.equal(0, (model.count(program(true), asleep)))
    assert.is_true(model.count(program(false), asleep) > 0)
  end)

  it("for a region, whose function and open pieces are read through it", function()
    check(function(o)
      return {{store("fn", 1), store("open", 1), store("region", 1, o.publish)}, {load("region", "region", o.look),
        when(function(r) return r.region == 1 end), load("fn", "fn"), add("open", "open", -1)}}
    end, function(r) return r.fn == 0 or r.open == 0 end, {publish = "release", look = "acquire"},
      {publish = false, look = false})
  end)

  it("for the results of a region's pieces, which the caller reads when none is open", function()
    check(function(o)
      local function worker(n)
        return {store("result" .. n, 1), add("left" .. n, "open", 1, o.finish)}
      end
      return {{load("open", "open", o.wait), when(function(r) return r.open == 2 end), load("a", "result1"),
        load("b", "result2")}, worker(1), worker(2)}
    end, function(r) return r.a == 0 or r.b == 0 end, {finish = "acq_rel", wait = "acquire"},
      {finish = false, wait = false})
  end)

  it("for the storage that its last holder frees", function()
    check(function(o)
      return {{load("read", "memory"), add("first", "refs", -1, o.drop)},
        {add("last", "refs", -1, o.drop), when(function(r) return r.last == -1 end), store("memory", 2)}}
    end, function(r) return r.read == 2 end, {drop = "acq_rel"}, {})
  end)

  it("for a message header, whose fields are read after its state", function()
    check(function(o)
      return {{store("offset", 7), store("state", 1, o.post)}, {load("state", "state", o.accept),
        when(function(r) return r.state == 1 end), load("offset", "offset")}}
    end, function(r) return r.offset == 0 end, {post = "release", accept = "acquire"}, {post = false, accept = false})
  end)

  it("for the state of a rank that ends, whose text is complete before it", function()
    check(function(o)
      return {{store("text", 1), store("first_failed", 1), store("state", 1, o.leave)},
        {load("state", "state", o.look), load("text", "text"), load("first", "first_failed")}}
    end, function(r) return r.state == 1 and (r.text == 0 or r.first == 0) end,
      {leave = "release", look = "acquire"}, {leave = false, look = false})
  end)

  it("for a captured graph, whose thread other threads read through its address", function()
    check(function(o)
      return {{store("thread", 1), store("graph", 1, o.begin)}, {load("graph", "graph", o.look),
        when(function(r) return r.graph == 1 end), load("thread", "thread")}}
    end, function(r) return r.thread == 0 end, {begin = "release", look = "acquire"}, {begin = false, look = false})
  end)
end)
