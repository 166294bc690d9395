-- The completions of Tab, and that it runs nothing of the user's.
local C = require "accelhost._C"
local accelhost = require "accelhost"
local complete = require "accelhost.repl.complete"
local evaluate = require "accelhost.repl.evaluate"
local folder = require "spec.support.folder"

local e

local function choices(before)
  return (complete.choices(e, before))
end

local function has(list, wanted)
  for _, one in ipairs(list) do
    if one == wanted then return true end
  end
  return false
end

describe("completion at the prompt", function()
  before_each(function()
    e = evaluate.new{write = function() end}
  end)

  it("completes locals, globals, keywords and the available names", function()
    e:run "local wonderful, wonder_of_spec = 1, 2"
    assert.same({"wonder_of_spec", "wonderful"}, choices "print(wonde")
    assert.same({"while"}, choices "whi")
    assert.same({"accelerator", "accelhost"}, choices "acc")
    assert.same({"coroutine"}, choices "x = corou")
    assert.same({}, choices "nothing_begins_so")
  end)

  it("follows tables, by names, positions and texts in brackets", function()
    e:run "local t = {inner = {{name = 1, number = 2}}, ['a b'] = {last = 1}}"
    assert.same({"name", "number"}, choices "t.inner[1].n")
    assert.same({"last"}, choices "t['a b'].")
    assert.same({"inner"}, choices "t.")
    assert.same({}, choices "t.inner[2].n")
    assert.same({}, choices "t.inner.x.y.")
    assert.same({"byte"}, choices "string.by")
  end)

  it("knows methods and fields of tensors", function()
    e:run "local x = ones(2)"
    assert.same({"matmul", "matrix_exp", "matrix_power"}, choices "x:mat")
    assert.truthy(has(choices "x.requ", "requires_grad"))
    assert.is_false(has(choices "x:requ", "requires_grad"))
    assert.same({"sum", "sum_to_size"}, choices "x.sum")
    e:run "local s = 'a'"
    assert.same({"upper"}, choices "s:upp")
  end)

  it("knows methods, parameters and children of modules, through the classes", function()
    e:run "local Net = nn.Module:extend 'Net' function Net:init() self.layer = nn.Linear(2, 2) end "
    e:run "function Net:my_way() end local net = Net()"
    assert.same({"my_way"}, choices "net:my")
    assert.same({"layer"}, choices "net.lay")
    assert.same({"weight"}, choices "net.layer.wei")
    assert.same({"weight"}, choices "net:lay(net.layer.wei")
    assert.truthy(has(choices "net:para", "parameters"))
    assert.same({"reset_parameters"}, choices "net.layer:reset")
    e:run "local opt = optim.SGD(net:parameters()) local loader = data.DataLoader({1, 2})"
    assert.truthy(has(choices "opt:zero", "zero_grad"))
  end)

  it("lists the library's namespaces by their own listing, without loading their modules", function()
    rawset(accelhost, "accelerator", nil) -- an earlier spec may have used it
    assert.truthy(has(choices "nn.Multihead", "MultiheadAttention"))
    assert.same({"cross_entropy"}, choices "F.cross_e")
    assert.truthy(has(choices "accelhost.linalg.sv", "svd"))
    assert.same({"AdamW"}, choices "accelhost.optim.AdamW")
    assert.truthy(has(choices "accelerator:prep", "prepare"))
    assert.truthy(has(choices "accelerator.num", "num_processes"))
    assert.is_nil(rawget(accelhost, "accelerator"))
  end)

  it("hides names that begin with _ until that is typed", function()
    e:run "local t = {_hidden = 1, seen = 2}"
    assert.same({"seen"}, choices "t.")
    assert.same({"_hidden"}, choices "t._")
  end)

  it("offers the options of a call in its last table", function()
    local list = choices "optim.AdamW(p, {we"
    assert.equal("weight_decay = ", list[1])
    assert.truthy(has(choices "nn.Linear(2, 3, {bias = false, d", "device = "))
    assert.truthy(has(choices "optim.SGD(p, {", "lr = "))
    assert.same({"weight_decay = "}, choices "optim.AdamW(model:parameters(), {we")
    assert.same({"weight_decay = "}, choices "optim.AdamW(model:parameters(), {lr = f(1), we")
    assert.same({"stride = "}, choices "nn.Conv2d(1, 2, 3, {str")
    assert.falsy(has(choices "optim.SGD(p, {lr = f {momentum = 1}, ", "lr = ")) -- has a value
    assert.truthy(has(choices "optim.SGD(p, {lr = f {momentum = 1}, ", "momentum = "))
    assert.same({}, choices "f(x, {")
  end)

  it("completes files in texts and in shell lines", function()
    local leave = folder.enter()
    os.execute "mkdir sub && touch data.csv data.txt sub/one .hidden"
    assert.same({"data.csv", "data.txt"}, choices "accelhost.load('da")
    assert.same({"sub/"}, choices "f \"su")
    assert.same({"sub/one"}, choices "io.open('sub/")
    assert.same({"data.csv", "data.txt", "sub/"}, choices "f '")
    assert.same({"data.csv", "data.txt"}, choices "$ cat da")
    assert.same({}, choices "io.open('nowhere/")
    leave()
  end)

  it("completes commands", function()
    assert.same({"time"}, choices "%ti")
    assert.same({"Bilinear"}, choices "? nn.Bilinea")
  end)

  it("runs nothing of the user's", function()
    e:run [[
      ran_of_spec = false
      local function run() ran_of_spec = true end
      local t = setmetatable({}, {__index = run, __tostring = run, __call = run, __pairs = run, names = run})
      local deep = {t = t}
      local p = newproxy(true)
      getmetatable(p).__index = run
      local chained = setmetatable({}, {__index = setmetatable({found = 1}, {__index = run})})
    ]]
    assert.same({}, choices "t.x")
    assert.same({}, choices "t.x.y")
    assert.same({}, choices "deep.t.x")
    assert.same({}, choices "p.x")
    assert.same({}, choices "run().x")
    assert.same({"found"}, choices "chained.")
    assert.is_false(rawget(_G, "ran_of_spec"))
    rawset(_G, "ran_of_spec", nil)
  end)

  it("ends in circles of metatables and in tables of themselves", function()
    e:run "local a = {} setmetatable(a, a) a.__index = a a.self = a"
    assert.same({"self"}, choices "a.self.self.se")
  end)

  it("inserts the common part of all choices, and lists them when that is empty", function()
    e:run "local long_name_one, long_name_two = 1, 2"
    local insert, list = complete.at(e, "long_n")
    assert.equal("ame_", insert)
    assert.is_nil(list)
    insert, list = complete.at(e, "long_name_")
    assert.equal("", insert)
    assert.equal("long_name_one  long_name_two\n", list)
    assert.equal("wo", (complete.at(e, "long_name_t")))
  end)

  it("accepts any bytes", function()
    local pieces = {
      "x", "nn", ".", ":", "[", "]", "(", ")", "{", "}", "'", '"', "[[", "--", "1", " ", ",", "=", "?", "$", "%", "\0",
      "\255", "\n", "local ", "string", "\\",
    }
    local state = 7
    for _ = 1, 3000 do
      local parts = {}
      for k = 1, 8 do
        state = (state * 16807) % 2147483647
        parts[k] = pieces[state % #pieces + 1]
      end
      local insert = complete.at(e, table.concat(parts))
      assert.equal("string", type(insert))
    end
  end)

  it("lists folders with their sort, and nothing for other paths", function()
    assert.same({}, C.edit.list "/nowhere/at/all")
    assert.truthy(has(C.edit.list "/", "usr/"))
  end)
end)
