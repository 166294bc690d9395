-- Token files: written from ids and texts, read as blocks, through loaders.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local contents, write = files.read, files.write
local data, text = accelhost.data, accelhost.text

local leave
before_each(function() leave = folder.enter() end)
after_each(function() leave() end)

describe("write_tokens", function()
  it("writes nanoGPT's bytes, and NumPy's format to a name that ends in .npy", function()
    assert.equal(4, data.write_tokens("t.bin", {1, 258, 65535, 0}))
    assert.equal("\1\0\2\1\255\255\0\0", contents "t.bin")
    data.write_tokens("t.npy", {1, 258})
    local header = "\147NUMPY\1\0v\0{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }"
    assert.equal(header .. (" "):rep(127 - #header) .. "\n\1\0\2\1", contents "t.npy")
    data.write_tokens("wide.npy", {70000}, {vocab_size = 70001})
    assert.matches("'<u4'", contents "wide.npy")
    assert.equal("\112\17\1\0", contents("wide.npy"):sub(129))
  end)

  it("accepts tensors of any integers and layout, tables, and a function that returns them", function()
    local rows = accelhost.arange(6):view(2, 3)
    local pieces = {rows:t(), {7, 8}, rows:to "uint8", {}}
    local at = 0
    assert.equal(14, data.write_tokens("t.bin", function()
      at = at + 1
      return pieces[at]
    end))
    local set = data.TokenFile("t.bin", {block_size = 14})
    assert.same({0, 3, 1, 4, 2, 5, 7, 8, 0, 1, 2, 3, 4, 5}, set:get(0).input_ids:tolist())
    assert.equal(0, data.write_tokens("none.npy", {}))
    assert.equal(128, #contents "none.npy")
  end)

  it("tokenizes a large file piece by piece as the whole would be, wherever the pieces end", function()
    local lines = {}
    for i = 1, 60000 do lines[i] = ("line %d's\n\n  x\194\160\n"):format(i):rep(i % 3) end
    lines[#lines + 1] = ("w"):rep(600000)
    local whole = table.concat(lines)
    write("long.txt", whole)
    assert.is_true(#whole > 4 * 256 * 1024)
    local vocab, count = {}, 0
    for token in ("Ġ Ċ ł Â l i n e ' s x w ĠĠ ĊĊ 's 0 1 2 3 4 5 6 7 8 9"):gmatch "%S+" do
      vocab[token], count = count, count + 1
    end
    local sections = {
      pre_tokenizer = {type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = true},
      model = {type = "BPE", vocab = vocab, merges = {"Ċ Ċ", "Ġ Ġ", "' s"}},
    }
    local tokenizer = text.Tokenizer(sections)
    local wanted = tokenizer(whole, {add_special_tokens = false}).input_ids:reshape(-1)
    assert.equal(wanted:numel(), data.write_tokens("long.bin", "long.txt", {tokenizer = tokenizer}))
    local set = data.TokenFile("long.bin", {block_size = wanted:numel()})
    assert.is_true(set:get(0).input_ids:equal(wanted))
  end)

  it("appends the end-of-text token to each file and each text", function()
    local tokenizer = text.character_tokenizer "abc"
    tokenizer:add_special_tokens {eos_token = "<end>"}
    write("a.txt", "ab")
    write("b.txt", "c")
    local options = {tokenizer = tokenizer, append_eos = true}
    data.write_tokens("t.bin", {"a.txt", "b.txt"}, options)
    assert.same({0, 1, 3, 2, 3}, data.TokenFile("t.bin", 5):get(0).input_ids:tolist())
    local texts = {"cc", "", "a"}
    data.write_tokens("t.bin", function() return table.remove(texts, 1) end, options)
    assert.same({2, 2, 3, 3, 0, 3}, data.TokenFile("t.bin", 6):get(0).input_ids:tolist())
  end)

  it("leaves the old file, and nothing else, when something fails on the way", function()
    data.write_tokens("t.bin", {1, 2})
    check.raises("write_tokens: 't.bin': token 9 at place 3 is outside 0..8", function()
      local at = 0
      data.write_tokens("t.bin", function()
        at = at + 1
        return ({{5, 6}, {7, 9}})[at]
      end, {vocab_size = 9})
    end)
    check.raises("one bad text", function()
      data.write_tokens("t.bin", function() error "one bad text" end)
    end)
    assert.equal("\1\0\2\0", contents "t.bin")
    assert.same({"t.bin"}, folder.names ".")
  end)

  it("reports the expected arguments", function()
    check.raises("token 65536 at place 0 is outside 0..65535 (uint32 holds more)", function()
      data.write_tokens("t.bin", {65536})
    end)
    check.raises("token -1 at place 1", function() data.write_tokens("t.bin", {3, -1}) end)
    check.raises("70000 tokens need uint32, which a file without header cannot record", function()
      data.write_tokens("t.bin", {1}, {vocab_size = 70000})
    end)
    check.raises("expected integers, got a tensor of float32", function()
      data.write_tokens("t.bin", accelhost.ones(3))
    end)
    check.raises("expected ids in tensors or tables, got 'x'", function()
      data.write_tokens("t.bin", function() return "x" end)
    end)
    check.raises("a text file ('t.txt') needs a tokenizer", function() data.write_tokens("t.bin", "t.txt") end)
    check.raises("append_eos: it is a tokenizer's", function() data.write_tokens("t.bin", {1}, {append_eos = true}) end)
    local tokenizer = text.character_tokenizer "a"
    check.raises("write_tokens: cannot read 'none.txt': No such file", function()
      data.write_tokens("t.bin", "none.txt", {tokenizer = tokenizer})
    end)
    check.raises("cannot read '.': Is a directory", function()
      data.write_tokens("t.bin", ".", {tokenizer = tokenizer})
    end)
    check.raises("the tokenizer has no eos_token", function()
      data.write_tokens("t.bin", "none.txt", {tokenizer = tokenizer, append_eos = true})
    end)
    check.raises("write_tokens: 'no/t.bin': cannot write: its folder does not exist", function()
      data.write_tokens("no/t.bin", {1})
    end)
  end)
end)

describe("TokenFile", function()
  local function file(count, name)
    data.write_tokens(name or "t.bin", accelhost.arange(count))
    return name or "t.bin"
  end

  it("yields blocks with the same tokens as labels, or the next ones", function()
    local set = data.TokenFile(file(11), {block_size = 4})
    assert.equal(2, #set)
    assert.same({tokens = 11, dtype = "uint16"}, {tokens = set.tokens, dtype = set.dtype})
    local block = set:get(1)
    assert.same({4, 5, 6, 7}, block.input_ids:tolist())
    assert.same({4, 5, 6, 7}, block.labels:tolist())
    assert.equal("int64", block.labels.dtype)
    block.labels:fill_(-100)
    assert.equal(4, block.input_ids[0]:item())
    local shifted = data.TokenFile("t.bin", {block_size = 4, shift = true})
    assert.same({5, 6, 7, 8}, shifted:get(1).labels:tolist())
  end)

  it("has as many blocks as fit: each stride, of a part, with the token behind when labels are shifted", function()
    file(12)
    local function count(options) return #data.TokenFile("t.bin", options) end
    assert.same({3, 2, 9, 8, 5}, {
      count {block_size = 4}, count {block_size = 4, shift = true}, count {block_size = 4, stride = 1},
      count {block_size = 4, stride = 1, shift = true}, count {block_size = 4, stride = 2},
    })
    local part = data.TokenFile("t.bin", {block_size = 3, first = 2, count = 7})
    assert.equal(2, #part)
    assert.same({5, 6, 7}, part:get(1).input_ids:tolist())
    assert.equal(1, count {block_size = 12})
    assert.equal(1, count {block_size = 1, first = 11})
  end)

  it("reads files of uint32 whose header has the dtype, and others by an option", function()
    data.write_tokens("w.npy", {1, 70000}, {vocab_size = 70001})
    local set = data.TokenFile("w.npy", 2)
    assert.equal("uint32", set.dtype)
    assert.same({1, 70000}, set:get(0).input_ids:tolist())
    write("raw.bin", "\1\0\0\0\112\17\1\0")
    assert.same({1, 70000}, data.TokenFile("raw.bin", {block_size = 2, dtype = "uint32"}):get(0).input_ids:tolist())
    check.raises("TokenFile: 'w.npy': it holds uint32, expected uint16", function()
      data.TokenFile("w.npy", {block_size = 1, dtype = "uint16"})
    end)
  end)

  it("makes a loader's batch without a step per sample, in any order", function()
    local set = data.TokenFile(file(40), {block_size = 4, shift = true})
    set.get = function() error "not asked for" end
    local firsts = {}
    for batch in data.DataLoader(set, {batch_size = 4, shuffle = true}) do
      assert.same({batch.input_ids:size(0), 4}, batch.labels:shape())
      assert.is_true((batch.input_ids + 1):equal(batch.labels))
      for _, first in ipairs(batch.input_ids:select(1, 0):tolist()) do firsts[#firsts + 1] = first end
    end
    table.sort(firsts)
    assert.same({0, 4, 8, 12, 16, 20, 24, 28, 32}, firsts)
  end)

  it("yields blocks to worker processes and to the user's collate function", function()
    local set, seen = data.TokenFile(file(16), 4), {}
    local loader = data.DataLoader(set, {batch_size = 2, num_workers = 2, collate_fn = function(samples)
      return accelhost.stack({samples[1].input_ids, samples[2].input_ids})
    end})
    for batch in loader do seen[#seen + 1] = batch:reshape(-1):tolist() end
    assert.same({{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}, seen)
  end)

  it("is sampled from any position by a seeded sampler, in a new order in each pass, and resumed", function()
    local set = data.TokenFile(file(1000), {block_size = 8, stride = 1})
    local function loader()
      local sampler = data.RandomSampler(set, {replacement = true, num_samples = 12, seed = 5})
      return data.DataLoader(set, {batch_size = 4, sampler = sampler, seed = 5})
    end
    local function pass(from, passes, stop)
      local firsts, state = {}, nil
      for _ = 1, passes or 1 do
        for batch in from do
          firsts[#firsts + 1] = batch.input_ids:select(1, 0):tolist()
          if #firsts == stop then
            state = from:state_dict()
            break
          end
        end
      end
      return firsts, state
    end
    local whole = pass(loader(), 2)
    assert.same(whole, pass(loader(), 2))
    assert.not_same({whole[1], whole[2], whole[3]}, {whole[4], whole[5], whole[6]})
    local _, state = pass(loader(), 1, 2)
    local rest = loader()
    rest:load_state_dict(state)
    assert.same({whole[3]}, (pass(rest)))
  end)

  it("is passed to other processes by its path", function()
    local set = data.TokenFile(file(12), {block_size = 4, vocab_size = 12})
    assert.equal(8, accelhost.launcher(function() return set:get(2).input_ids[0]:item() end, {num_processes = 2}))
  end)

  it("names the file and its error", function()
    check.raises("TokenFile: 'none.bin': cannot read: No such file", function() data.TokenFile("none.bin", 4) end)
    check.raises("TokenFile: '.': cannot read: it is a folder", function() data.TokenFile(".", 4) end)
    write("odd.bin", "abc")
    check.raises("TokenFile: 'odd.bin': 3 bytes are no whole number of uint16", function()
      data.TokenFile("odd.bin", 1)
    end)
    write("empty.bin", "")
    check.raises("'empty.bin': 0 tokens are fewer than a block has (1)", function()
      data.TokenFile("empty.bin", 1)
    end)
    file(4)
    check.raises("'t.bin': 4 tokens are fewer than a block has (4 and the next one)", function()
      data.TokenFile("t.bin", {block_size = 4, shift = true})
    end)
    check.raises("'t.bin' has 4 tokens, not 3 from 2 on", function()
      data.TokenFile("t.bin", {block_size = 1, first = 2, count = 3})
    end)
    write("bad.npy", "abcd")
    check.raises("TokenFile: 'bad.npy': not a .npy file", function() data.TokenFile("bad.npy", 1) end)
    accelhost.save(accelhost.arange(4), "int.npy")
    check.raises("'int.npy': npy: expected one dim of '<u2' or '<u4', got 1 of '<i8'", function()
      data.TokenFile("int.npy", 1)
    end)
    data.write_tokens("cut.npy", accelhost.arange(4))
    write("cut.npy", contents("cut.npy"):sub(1, -3))
    check.raises("'cut.npy': npy: 4 elements of '<u2' do not match the 6 bytes after the header", function()
      data.TokenFile("cut.npy", 1)
    end)
  end)

  it("names a token beyond the vocabulary with its place, and an index that is none", function()
    local set = data.TokenFile(file(12), {block_size = 4, vocab_size = 10})
    assert.same({4, 5, 6, 7}, set:get(1).input_ids:tolist())
    check.raises("TokenFile: 't.bin': token 10 at place 10 is outside 0..9", function() set:get(2) end)
    check.raises("TokenFile: 't.bin': token 10 at place 10 is outside 0..9", function()
      for _ in data.DataLoader(set, {batch_size = 3}) do end -- luacheck: ignore
    end)
    check.raises("TokenFile: index 3 is out of range (0 to 2)", function() set:get(3) end)
    check.raises("TokenFile: index -1 is out of range", function() set:rows {0, -1} end)
  end)
end)
