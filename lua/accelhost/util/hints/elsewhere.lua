--- Names of PyTorch, Accelerate and Python, and their names here.
local elsewhere = {}

--- Fields and methods that are requested of an object: name -> the text after the object's name instead.
elsewhere.fields = {
  numpy = ":tolist()", type = ":to(dtype)", copy = ":clone()", len = "#",
  append = ":append(...)", environ = ".getenv(name)", load = ":load_state_dict(accelhost.load(path))",
  __len__ = ":len()", backwards = ":backward()", ndimension = ":dim()",
}

--- The same where a sentence is needed.
elsewhere.sentences = {
  cpu = 'write tensor:to "cpu"',
  values = "a reduction over a dim returns two results: local values, indices = x:max(1)",
  indices = "a reduction over a dim returns two results: local values, indices = x:max(1)",
  save_state = "accelerator:save_state(folder) saves all that was prepared",
  load_state = "accelerator:load_state(folder) loads the state that accelerator:save_state saved",
  save_model = "accelerator:save_model(model, folder), or accelhost.save(model:state_dict(), file)",
  save = 'accelhost.save(object, "file.safetensors")',
  autocast = "accelhost.autocast(\"cpu\", function() ... end), or accelerator:autocast(function() ... end)",
  log = "accelerator:log(values, {step = n}) after accelerator:init_trackers; accelerator:print prints",
  broadcast = "accelhost.distributed.broadcast(x, 0), or accelhost.utils.broadcast(x)",
  init_process_group = "accelhost.distributed.init_process_group()",
  makedirs = "accelhost.utils.makedirs(name, {exist_ok = true})",
  Ellipsis = 'write "...", a text: x[{"...", 0}]',
  listdir = "io.popen(\"ls \" .. folder):lines()", dumps = "accelhost.json.encode(value)",
  deepcopy = "model:deepcopy(), tensor:clone()", perf_counter = "accelhost.time() is the clock",
}

--- Words that a script uses as globals.
elsewhere.globals = {
  len = "#x is the length of x", range = "for i = 0, n - 1 do ... end counts", enumerate = "accelhost.enumerate",
  str = "tostring(x)", int = "math.floor(x)", float = "tonumber(x)", list = "{...} is a list",
  dict = "{...} is a table",
  isinstance = "accelhost.isinstance(x, nn.Linear), type(x) == \"number\"", super = "Parent.method(self, ...)",
  max = "math.max", min = "math.min", abs = "math.abs", zip = "for i = 1, #list do", round = "(\"%.2f\"):format(x)",
  sum = "add in a loop, or accelhost.stack(list):sum() for tensors", f = "(\"loss %.3f\"):format(loss) fills a text",
  torch = "local accelhost = require \"accelhost\"",
  iter = "for inputs, labels in loader do ... break end reads one batch",
  nn = "local nn = accelhost.nn", F = "local F = accelhost.nn.functional", try = "pcall(function() ... end)",
  optim = "local optim = accelhost.optim", data = "local data = accelhost.data",
  accelhost = "local accelhost = require \"accelhost\"", tqdm = "accelhost.progress",
  self = "define the method with a colon, function Net:forward(x)", math = "Lua's own library",
  dist = "local dist = accelhost.distributed", sys = "arg has the script's arguments",
  time = "accelhost.time()", random = "math.random, accelhost.rand", np = "accelhost.tensor, :tolist()",
  raise = "error(\"message\")", sorted = "table.sort(list)", any = "x:any()", all = "x:all()",
  tuple = "{...} is a list, and a function returns several values", set = "{name = true} holds names",
  bool = "x ~= 0 and x ~= nil", format = "(\"%.2f\"):format(x)", reversed = "for i = #list, 1, -1 do",
  map = "for i, x in ipairs(list) do list[i] = f(x) end", filter = "if f(x) then kept[#kept + 1] = x end in a loop",
  partial = "function(x) return f(1, x) end", functools = "function(x) return f(1, x) end", itertools = "loops",
  collections = "{} is a table of names, a list, or both", hasattr = "object.name ~= nil", getattr = "object[name]",
  setattr = "object[name] = value", open = "io.open(path)", input = "accelhost.input(prompt)", exit = "os.exit(code)",
  quit = "os.exit(code)", copy = "model:deepcopy(), tensor:clone(), of a state_dict the clone of each value",
  json = "local json = accelhost.json, with encode and decode", argparse = "accelhost.args {lr = 1e-3}",
  logging = "accelhost.logging", warnings = "io.stderr:write(text)", glob = "io.popen(\"ls \" .. folder):lines()",
  pathlib = "paths are texts: folder .. \"/\" .. name", Path = "paths are texts: folder .. \"/\" .. name",
  pickle = "accelhost.save and accelhost.load", plt = "accelhost.plot(values)", pd = "data.load_dataset, data.Table",
  Image = "accelhost.data.read_image(path)", PIL = "accelhost.data.read_image(path)",
  transforms = "local transforms = accelhost.data.transforms", datasets = "local data = accelhost.data",
  torchvision = "accelhost.data.transforms, accelhost.models", accelerate = "accelhost.Accelerator()",
  transformers = "accelhost.Trainer, accelhost.models, accelhost.text", models = "local models = accelhost.models",
  Ellipsis = 'x[{"...", 0}] indexes the last dim',
}

--- Modules of Python that a script requires, by the first part of their names.
elsewhere.modules = {
  torch = "Lua writes local accelhost = require \"accelhost\"", numpy = "accelhost.tensor, :tolist()",
  torchvision = "accelhost.data.transforms, accelhost.models", optuna = "accelhost.sweep", peft = "accelhost.peft",
  accelerate = "accelhost.Accelerator", transformers = "accelhost.Trainer, accelhost.models, accelhost.text",
}

--- Options.
elsewhere.options = {
  download = "`accelhost data mnist --dir DIR` downloads the files",
  pin_memory_device = "leave it out: pin_memory = true pins for CUDA devices",
  tokenizer = "its name is processing_class",
  num_classes = "the last layer has as many outputs", device_ids = "accelhost launch spreads a script over processes",
  map_location = 'leave it out: t:to "cpu" moves the result',
  weights_only = "leave it out: nothing in a file is run",
}

return elsewhere
