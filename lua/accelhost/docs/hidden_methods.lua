--- Methods that the reference does not show.

-- Methods that a class written in a script defines or calls, and those that run when an object is made or called.
local not_methods = {}
for _, name in ipairs {
  "check_group", "define", "init_state", "setup", "each_group", "per_group", "functions_per_group", "check",
  "check_optimizer", "get_lr", "closed_form", "new_step", "zeros_like", "init", "forward", "extra_repr", "extend",
  "native", "shard", "current_lrs", "keep_fields", "rows", "define_fused", "steps",
  "take", "next_momentum", "normalise", "build", "init_weight", "initial_deviation", "tied_weights",
  "complete", "complete_changes", "decoder_options", "change_rope", "read_rope", "default_layer_types",
  "all_slide_but_every", "last_layers_slide", "head_width",
} do
  not_methods[name] = true
end

-- An internal method of one class and its subclasses whose name is a public method of other classes.
local hidden_in = {apply = "LRScheduler"}
-- Methods of every class that are shown once, in the class where readers search for them.
local shown_in = {class_name = "Module"}

--- Is the method internal to the library?
---@param class table
return function(class, name)
  if not_methods[name] or name:find "^_" or name:find "^is_" then return true end
  if shown_in[name] then return rawget(class, "_name") ~= shown_in[name] end
  while type(class) == "table" and hidden_in[name] do
    if rawget(class, "_name") == hidden_in[name] then return true end
    class = rawget(class, "_parent")
  end
  return false
end
