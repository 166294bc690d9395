local accelhost = require "accelhost"
local check = require "spec.support.check"
local json = accelhost.json
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

describe("JSON", function()
  it("is read into tables, strings, numbers, booleans and null", function()
    local value = json.decode [[ {"a": [1, -2.5e3, "x\u00e9\n"], "b": {"c": true, "d": false}, "e": null} ]]
    assert.same({a = {1, -2500, "x\195\169\n"}, b = {c = true, d = false}, e = json.null}, value)
    assert.equal(7, json.decode "7")
    assert.equal("a\0b", json.decode '"a\\u0000b"')
  end)

  it("is read with numbers beyond those of C, as configuration files have them", function()
    assert.equal(1e30, json.decode "1000000000000000019884624838656")
    assert.equal(2 ^ 53, json.decode "9007199254740993")
  end)

  it("reports line and column of an error", function()
    check.raises("decode: line 2, column 7: ", function() json.decode '{"a": 1,\n "b": x}' end)
    check.raises("decode: line 1, column 10: duplicate object key", function() json.decode '{"a":1,"a":2}' end)
    for _, text in ipairs {"", "[1, 2", "[1] 2", '"\255"', "01", "nul", '{"a" 1}', "[1,]", ("["):rep(5000), "1e999"} do
      check.raises("decode: line ", function() json.decode(text) end)
    end
  end)

  it("is written on one line with sorted keys, or indented", function()
    local value = {b = {1, 2.5, {}}, a = "x\"\n", c = json.array {}, d = json.null, e = false}
    assert.equal([[{"a": "x\"\n", "b": [1, 2.5, {}], "c": [], "d": null, "e": false}]], json.encode(value))
    assert.equal('{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}', json.encode({a = {1, 2}, b = {}}, {indent = 2}))
  end)

  it("is written with numbers that read back as they were, and as short as that allows", function()
    assert.equal("[0.1, 1e-08, 123456789012, 0.30000000000000004, 1.7976931348623157e+308, -0]",
      json.encode {0.1, 1e-8, 123456789012, 0.1 + 0.2, 1.7976931348623157e308, neg0})
    for _ = 1, 1000 do
      local number = (math.random() - 0.5) * 10 ^ math.random(-300, 300)
      assert.equal(number, json.decode(json.encode(number)))
    end
  end)

  it("reports the path of a value without a JSON form", function()
    local cases = {
      {"value.a[2].b: NaN is no JSON", {a = {1, {b = 0 / 0}}}},
      {"value[1]: infinity is no JSON", {1 / 0}},
      {"value.a: an array with holes, or with names in addition to its items", {a = {1, 2, x = 3}}},
      {"value: expected keys that are strings", {[0] = 1}},
      {"value.f: expected a table, string, number, boolean or json.null, got function", {f = print}},
      {"value.t: a tensor or another object (item() and tolist() return plain values)", {t = accelhost.ones(2)}},
      {"value[1]: a string that is not UTF-8", {"\255"}},
    }
    for _, case in ipairs(cases) do
      check.raises("encode: " .. case[1], function() json.encode(case[2]) end)
    end
    local ring = {}
    ring.ring = ring
    check.raises("encode: nested deeper than 2048 tables (does one contain itself?)", function() json.encode(ring) end)
    check.raises("encode: indent: expected 0 to 16, got 17", function() json.encode({}, 17) end)
  end)

  it("restores the written value, whatever the value", function()
    local function any(depth)
      local kind = math.random(depth > 0 and 7 or 4)
      if kind == 1 then return math.random(-1000, 1000) / 8 end
      if kind == 2 then return ("\"\\\0\n\tz\195\188"):rep(math.random(0, 3)) end
      if kind == 3 then return math.random() < 0.5 end
      if kind == 4 then return json.null end
      local value, count = {}, math.random(0, 4)
      for i = 1, count do value[kind == 5 and "k" .. i or i] = any(depth - 1) end
      return (kind ~= 5 and count == 0) and json.array(value) or value
    end
    for _ = 1, 300 do
      local value = any(5)
      local text = json.encode(value, {indent = math.random(0, 3)})
      assert.same(value, json.decode(text))
      assert.equal(text:gsub("%s", ""), (json.encode(json.decode(text)):gsub("%s", "")))
    end
  end)

  it("passes as lists and options of the library", function()
    local config = json.decode [[ {"lr": 0.01, "betas": [0.8, 0.9]} ]]
    local optimizer = accelhost.optim.Adam({accelhost.ones(2, {requires_grad = true})}, config)
    assert.equal(0.8, optimizer.param_groups[1].betas[1])
  end)
end)
