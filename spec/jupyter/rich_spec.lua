-- Values as a notebook shows them: the modules of the kernel's plugin, read from their files.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local display = require "accelhost.display"
local screen = require "accelhost.util.screen"

local nn = accelhost.nn
local before = package.path

describe("a value in a notebook", function()
  local mime, text

  setup(function()
    package.path = "lua/?.lua;" .. package.path
    mime, text = require "accelhost.jupyter.mime", require "accelhost.jupyter.text"
  end)
  teardown(function()
    package.path = before
    for name in pairs(package.loaded) do
      if name:find "^accelhost%.jupyter" then package.loaded[name] = nil end
    end
  end)

  local function encodes()
    return (pcall(C.data.encode_png, accelhost.zeros(1, 1, 1):to "uint8"))
  end

  it("is text, and a table for a tensor of one or two dims, with its shape and dtype", function()
    assert.same({["text/plain"] = "3"}, (mime.bundle(3)))
    local bundle = mime.bundle(accelhost.tensor {{1, 2}, {3, 4}})
    assert.matches("^tensor%(%[%[1", bundle["text/plain"])
    assert.matches("<tr><th>1</th><td>3</td><td>4</td></tr>", bundle["text/html"], 1, true)
    assert.matches("tensor (2, 2) float32", bundle["text/html"], 1, true)
    assert.matches("<pre>", mime.bundle(accelhost.zeros(2, 2, 2))["text/html"], 1, true)
  end)

  it("is bounded: of many rows and columns the first and the last are shown", function()
    local html = mime.bundle(accelhost.zeros(1000, 1000))["text/html"]
    assert.truthy(#html < 100000)
    assert.matches("<th>999</th>", html, 1, true)
    assert.matches("⋮", html, 1, true)
  end)

  it("is escaped where it is HTML", function()
    local set = accelhost.data.Table {["<b>"] = {"<script>alert(1)</script>"}}
    local html = mime.bundle(set)["text/html"]
    assert.is_nil(html:find("<script>", 1, true))
    assert.is_nil(html:find("<b>", 1, true))
    assert.matches("1 rows, 1 columns", html, 1, true)
  end)

  it("has words on the left, numbers on the right, and numbers of rows for matrices, not for vectors", function()
    local set = accelhost.data.Table {words = {"a"}, numbers = {1}}
    local html = mime.bundle(set)["text/html"]
    assert.matches("<tr><th>0</th><td>1</td><td style=\"text-align:left\">a</td></tr>", html, 1, true)
    assert.matches("<tr><th></th><td>1</td><td>2</td></tr>", mime.bundle(accelhost.tensor {1, 2})["text/html"], 1, true)
    assert.matches("<tr><th>0</th><td>1</td><td>2</td></tr>", mime.bundle(accelhost.tensor {{1, 2}})["text/html"], 1,
      true)
  end)

  it("names a figure's horizontal axis", function()
    for _, case in ipairs {
      {accelhost.plot({1, 2}, {axis = "trial"}), "trial"}, {accelhost.plot({1, 2}, {1, 2}), "x"},
      {accelhost.plot({1, 2}, {x = {1, 2}, axis = "epoch"}), "epoch"}, {accelhost.plot {1, 2}, "step"},
    } do
      assert.matches(">" .. case[2] .. "</text>", case[1]:svg(), 1, true)
    end
  end)

  it("is a picture for uint8 images and grids of them, and for others on request", function()
    if not encodes() then return pending "needs accelhost-image.so, which is built where libpng is" end
    local image, metadata = mime.bundle(accelhost.zeros(3, 10, 20):to "uint8")
    assert.matches("^iVBORw0KGgo", image["image/png"])
    assert.same({width = 100, height = 50}, metadata["image/png"])
    assert.truthy(mime.bundle(accelhost.zeros(9, 1, 8, 8):to "uint8")["image/png"])
    assert.is_nil(mime.bundle(accelhost.zeros(3, 8, 8))["image/png"])
    assert.truthy(mime.bundle(accelhost.rand(8, 8), {as = "image"})["image/png"])
    assert.error_matches(function() mime.bundle(accelhost.zeros(2), {as = "image"}) end, "")
  end)

  it("is a tree and its parameters for a module", function()
    local html = mime.bundle(nn.Linear(784, 128))["text/html"]
    assert.matches("100,480 parameters", html, 1, true)
    local left = ' style="text-align:left">'
    assert.matches("<th" .. left .. "weight</th><td" .. left .. "(128, 784)</td>", html, 1, true)
    assert.matches("<td>100,352</td>", html, 1, true)
  end)

  it("is the bundle of its class's _repr_mimebundle, which stays as it is", function()
    local Own = nn.Module:extend "Own"
    local held = {["text/html"] = "<i>own</i>", ["image/png"] = "\137PNG"}
    function Own:_repr_mimebundle() return held end -- luacheck: ignore self
    local bundle = mime.bundle(Own())
    assert.equal("<i>own</i>", bundle["text/html"])
    assert.equal("iVBORw==", bundle["image/png"]:gsub("%z", ""))
    assert.truthy(bundle["text/plain"])
    assert.is_nil(held["text/plain"])
  end)

  it("is text for namespaces, and where its own presentation fails", function()
    assert.same({["text/plain"] = true}, {["text/plain"] = mime.bundle(nn)["text/plain"] ~= nil})
    local Wrong = nn.Module:extend "Wrong"
    function Wrong:_repr_mimebundle() return 5 end -- luacheck: ignore self
    assert.error_matches(function() mime.bundle(Wrong()) end, "_repr_mimebundle: expected a table of MIME types")
  end)

  it("is a table of rows on request", function()
    local html = mime.bundle({{loss = 0.5, step = 1}, {loss = 0.25, step = 2}}, {as = "table"})["text/html"]
    assert.matches("<th>loss</th><th>step</th>", html, 1, true)
    assert.matches("<td>0.25</td><td>2</td>", html, 1, true)
  end)

  it("has its positions counted in code points and its bytes in base64", function()
    assert.equal(3, text.bytes_before("aäb", 2))
    assert.equal(4, text.bytes_before("aäb", 9))
    assert.equal(3, text.length "aäb")
    for plain, coded in pairs {[""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foobar = "Zm9vYmFy"} do
      assert.equal(coded, text.base64(plain))
    end
  end)
end)

describe("accelhost.display", function()
  after_each(function() display.front_end, screen.surface = nil, nil end)

  -- A front end that keeps all calls.
  local function front_end()
    local calls = {}
    display.front_end = {
      show = function(_, value, options) calls[#calls + 1] = {"show", value, options.as} end,
      update = function(_, value) calls[#calls + 1] = {"update", value} end,
      input = function(prompt, password) return prompt .. tostring(password) end,
    }
    return calls
  end

  it("shows and updates by the front end", function()
    local calls = front_end()
    local shown = accelhost.display(1, "image")
    shown:update(2)
    assert.same({{"show", 1, "image"}, {"update", 2}}, calls)
    assert.equal("Name: true", accelhost.input("Name: ", {password = true}))
  end)

  it("refuses unknown options", function()
    assert.error_matches(function() accelhost.display(1, "picture") end, "as: expected 'image', 'table' or 'text'")
    assert.error_matches(function() accelhost.display(1, {at = 1}) end, "unknown option 'at'")
  end)

  it("updates a progress bar in its place", function()
    local drawn, closed = {}, {}
    screen.surface = {
      draw = function(_, line) drawn[#drawn + 1] = line end,
      close = function(_, leave) closed[#closed + 1] = leave end,
      has = function() return #drawn > 0 and #closed == 0 end,
    }
    for _ in accelhost.progress(3, {mininterval = 0}) do assert.truthy(#drawn > 0) end
    assert.matches("100%%|.*3/3", drawn[#drawn])
    assert.same({true}, closed)
  end)

  it("draws the numbers that a Trainer logs in one figure, without schedule and times", function()
    local calls = front_end()
    screen.surface = {draw = function() end, close = function() end, has = function() return false end}
    local callback, state = accelhost.ProgressCallback(), {max_steps = 2, global_step = 1, is_world_process_zero = true}
    callback:on_train_begin(nil, state)
    callback:on_log(nil, state, nil, {logs = {loss = 0.5, learning_rate = 1, epoch = 0.5, grad_norm = 2}})
    callback:on_log(nil, state, nil, {logs = {eval_loss = 0.25, eval_runtime = 3, eval_steps_per_second = 4}})
    callback:on_train_end()
    local figure = calls[#calls][2]
    assert.same({0.25}, figure.curves.eval_loss.y)
    assert.same({0.5}, figure.curves.loss.y)
    local names = {}
    for name in pairs(figure.curves) do names[#names + 1] = name end
    assert.equal(2, #names)
    assert.equal(2, #calls)
  end)

  it("draws a shown figure again when values are logged, at most four times a second", function()
    local calls = front_end()
    local figure = accelhost.plot()
    figure:show()
    for step = 1, 100 do figure:log({loss = 1 / step}, step) end
    assert.equal(1, #calls)
    assert.is_true(display.pending[figure])
    figure:show()
    assert.equal("update", calls[2][1])
    assert.is_nil(display.pending[figure])
  end)
end)

describe("accelhost.plot", function()
  it("accepts lists, tensors and pairs of x and y, and draws SVG and text", function()
    local figure = accelhost.plot({loss = {3, 2, 1}, rate = accelhost.tensor {1, 2}, other = {x = {0, 10}, y = {1, 2}}},
      {together = false})
    local svg = figure:svg()
    for _, name in ipairs {"loss", "rate", "other"} do assert.matches(">" .. name .. "<", svg, 1, true) end
    assert.matches("^<svg", svg)
    assert.matches("^loss\n", figure:text())
    local bundle = figure:_repr_mimebundle()
    assert.equal(svg, bundle["image/svg+xml"])
    assert.matches("a figure without points", tostring(accelhost.plot()))
  end)

  it("draws all curves together with a legend", function()
    local svg = accelhost.plot({train = {3, 2}, valid = {4, 3}}, {title = "loss"}):svg()
    assert.matches(">loss<", svg, 1, true)
    assert.matches(">train<", svg, 1, true)
  end)

  it("refuses other values", function()
    assert.error_matches(function() accelhost.plot {loss = {1, "2"}} end,
      "expected numbers in curve 'loss', got '2' at 2")
    assert.error_matches(function() accelhost.plot {loss = {x = {1}, y = {1, 2}}} end,
      "expected as many numbers as x has, 1, got 2 in curve 'loss'")
    assert.error_matches(function() accelhost.plot():log {loss = "1"} end, "log: 'loss': expected a number")
    assert.error_matches(function() accelhost.plot({1}):save "a.gif" end, "a .svg or .png file")
  end)
end)
