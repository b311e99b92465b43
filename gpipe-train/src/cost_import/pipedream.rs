//! Profiles of PipeDream (Narayanan et al. 2019): a graph of nodes with their times and bytes.
//!
//! ```text
//! node1 -- Embedding(32320, 1024) -- forward_compute_time=0.073, backward_compute_time=6.9, …
//!     node1 -- node2
//! ```
//!
//! Times are milliseconds per minibatch. The graph is sorted topologically into a chain of layers. The
//! output of a layer is all activations that cross to later layers, each counted once.

use std::collections::{BTreeSet, HashMap};

use gpipe_remat::planner::Described;

use super::cost_file::CostFile;

/// Parses the text of a file.
pub fn parse(text: &str) -> Result<CostFile, String> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut edges = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let mut parts = line.trim().splitn(3, " -- ");
        match (parts.next().map(str::trim), parts.next(), parts.next()) {
            (Some("") | None, ..) => {}
            (Some(name), Some(what), Some(numbers)) => {
                let node = Node::parse(name, what, numbers)
                    .map_err(|fault| format!("line {number}: {fault}"))?;
                if by_name.insert(name, nodes.len()).is_some() {
                    return Err(format!("line {number}: a second node `{name}`"));
                }
                nodes.push(node);
            }
            (Some(from), Some(to), None) => edges.push((number, from, to.trim())),
            (Some(_), None, _) => {
                return Err(format!(
                    "line {number}: neither JSON nor a node or an edge of a PipeDream profile, \
                     such as `node1 -- Linear -- forward_compute_time=1.0, …` and `node1 -- node2`"
                ));
            }
        }
    }
    if nodes.is_empty() {
        return Err("no nodes: a profile has at least one".into());
    }
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut waits = vec![0_usize; nodes.len()];
    for (number, from, to) in edges {
        let place = |name: &str| {
            let place = by_name.get(name).copied();
            place.ok_or_else(|| format!("line {number}: an edge of `{name}`, which is not a node"))
        };
        let (from, to) = (place(from)?, place(to)?);
        if from == to {
            return Err(format!("line {number}: an edge from a node to itself"));
        }
        next[from].push(to);
        waits[to] += 1;
    }
    let order = order(&nodes, &next, waits)?;
    Ok(CostFile::from_layers(chain(&nodes, &next, &order)))
}

struct Node {
    name: String,
    forward: f64,
    backward: f64,
    activation: u64,
    parameters: u64,
}

impl Node {
    fn parse(name: &str, what: &str, numbers: &str) -> Result<Self, String> {
        let mut node = Self {
            name: format!("{name} {}", what.trim()),
            forward: 0.0,
            backward: 0.0,
            activation: 0,
            parameters: 0,
        };
        for item in items(numbers) {
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| format!("`{item}` is not KEY=NUMBER"))?;
            let number = total(value).ok_or_else(|| {
                format!("{name}: {key} is `{value}`: use a finite number from 0 up")
            })?;
            match key.trim() {
                "forward_compute_time" => node.forward = number,
                "backward_compute_time" => node.backward = number,
                "activation_size" => node.activation = number as u64,
                "parameter_size" => node.parameters = number as u64,
                other => return Err(format!("{name}: unknown number `{other}`")),
            }
        }
        Ok(node)
    }
}

/// The items between commas outside of brackets.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth <= 0
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}

/// A number, or the sum of a list such as `[1.0; 2.0]`.
fn total(text: &str) -> Option<f64> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let mut sum = 0.0;
    for number in text.split([';', ',']) {
        sum += number.trim().parse::<f64>().ok()?;
    }
    (sum.is_finite() && sum >= 0.0).then_some(sum)
}

/// Sorts the nodes topologically; nodes that are ready keep the order of the file.
fn order(nodes: &[Node], next: &[Vec<usize>], mut waits: Vec<usize>) -> Result<Vec<usize>, String> {
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|&n| waits[n] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for &to in &next[node] {
            waits[to] -= 1;
            if waits[to] == 0 {
                ready.insert(to);
            }
        }
    }
    match waits.iter().position(|&waits| waits > 0) {
        None => Ok(order),
        Some(node) => Err(format!(
            "`{}` is on a cycle of edges or behind one: a model has no cycles",
            nodes[node].name
        )),
    }
}

fn chain(nodes: &[Node], next: &[Vec<usize>], order: &[usize]) -> Vec<Described> {
    let mut place = vec![0; nodes.len()];
    for (at, &node) in order.iter().enumerate() {
        place[node] = at;
    }
    // Bytes whose last reader is at each place.
    let mut ends = vec![0_u64; order.len() + 1];
    let mut crossing = 0_u64;
    let mut layers = Vec::with_capacity(order.len());
    for (at, &node) in order.iter().enumerate() {
        crossing = crossing.saturating_sub(ends[at]);
        let bytes = nodes[node].activation;
        if let Some(last) = next[node].iter().map(|&to| place[to]).max() {
            // The bytes that end never exceed those added here.
            crossing = crossing.saturating_add(bytes);
            ends[last] = ends[last].saturating_add(bytes);
        }
        let output = if at + 1 == order.len() {
            bytes
        } else {
            crossing
        };
        let Node {
            forward, backward, ..
        } = nodes[node];
        layers.push(Described {
            name: nodes[node].name.clone(),
            forward: forward / 1e3,
            input_grad: backward / 2e3,
            weight_grad: backward / 2e3,
            parameters: nodes[node].parameters,
            optimizer: 0,
            saved: 0,
            output,
        });
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, bytes: u64) -> String {
        format!(
            "{name} -- Linear(1, 2) -- forward_compute_time=1.0, backward_compute_time=2.0, \
             activation_size={bytes}.0, parameter_size=4.0\n"
        )
    }

    #[test]
    fn a_graph_becomes_a_chain() {
        // a ─► b ─► d and a ─► c ─► d, written from the end.
        let text = [
            &node("d", 8)[..],
            &node("c", 4),
            &node("b", 2),
            &node("a", 1),
            "\tb -- d\n\tc -- d\n\ta -- b\n\n\ta -- c\n",
        ]
        .concat();
        let layers = parse(&text).unwrap().layers;
        let names: Vec<_> = layers.iter().map(|layer| &layer.name[..1]).collect();
        assert_eq!(names, ["a", "c", "b", "d"]);
        // After c, a's activation still waits for b.
        let outputs: Vec<_> = layers.iter().map(|layer| layer.output).collect();
        assert_eq!(outputs, [1, 5, 6, 8]);
        assert_eq!((layers[0].forward, layers[0].weight_grad), (0.001, 0.001));
    }

    #[test]
    fn an_error_names_the_fault() {
        let two = [node("a", 1), node("b", 1)].concat();
        let cases = [
            (format!("{two}a -- b\nb -- a\n"), "a cycle"),
            (
                format!("{two}a -- a\n"),
                "line 3: an edge from a node to itself",
            ),
            (
                format!("{two}a -- c\n"),
                "line 3: an edge of `c`, which is not a node",
            ),
            (
                format!("{two}{}", node("a", 1)),
                "line 3: a second node `a`",
            ),
            (String::new(), "no nodes"),
            ("hello".into(), "line 1: neither JSON nor"),
            ("a -- L -- forward_compute_time=x".into(), "is `x`"),
            ("a -- L -- forward_compute_time=NaN".into(), "is `NaN`"),
            ("a -- L -- forward_compute_time=-1".into(), "is `-1`"),
            ("a -- L -- forward".into(), "is not KEY=NUMBER"),
            ("a -- L -- speed=1".into(), "unknown number `speed`"),
        ];
        for (text, words) in cases {
            let fault = parse(&text).unwrap_err();
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }

    #[test]
    fn many_nodes_are_read() {
        const NODES: usize = 100_000;
        let mut text = String::new();
        for index in 0..NODES {
            text += &format!("n{index} -- L -- forward_compute_time=1, activation_size=1\n");
        }
        for index in 1..NODES {
            text += &format!("\tn{} -- n{index}\n", index - 1);
        }
        assert_eq!(parse(&text).unwrap().layers.len(), NODES);
        text += &format!("\tn{} -- n0\n", NODES - 1);
        assert!(parse(&text).unwrap_err().contains("a cycle"));
    }
}
