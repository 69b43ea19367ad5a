//! One loop for each group of figures. They run beside one another, so a slow one holds up no other; each waits a
//! random part of its period first, so that the agents of many hosts do not report together.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::agent::Shared;
use super::collect::cpu::Times;
use super::gather::{self, SystemMemory};
use super::message::Kind;
use super::vm::{self, VmMemory};
use super::{exec, state};

/// A period of `every` that begins within half to one period.
fn period(every: Duration) -> tokio::time::Interval {
    let part = rand::rng().random_range(0.5..1.0);
    let mut interval = interval_at(Instant::now() + every.mul_f64(part), every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// BEACON_HOST: a sign of life, or the trouble as soon as there is some.
pub async fn beacon(agent: Shared) {
    let mut ticks = period(agent.config.periods.beacon);
    ticks.reset_immediately();
    let mut trouble = agent.trouble.subscribe();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            changed = trouble.changed() => if changed.is_err() { return },
        }
        let told = match agent.trouble() {
            Some(reason) => agent.send(Kind::Beacon, false, &reason).await,
            None => agent.send(Kind::Beacon, true, &gather::beacon(&agent).await).await,
        };
        // Written down by send; the next one comes soon.
        drop(told);
    }
}

/// SYSTEM_HOST: each period, and when it is wanted at once (SIGUSR1, the end of trouble): then by TCP, and again until it
/// was taken.
pub async fn system(agent: Shared, mut memory: SystemMemory) {
    let mut ticks = period(agent.config.periods.system);
    // A host that was in trouble stays failed until a good message has arrived.
    let mut surely = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = agent.system_now.notified() => {
                ticks.reset();
                surely = true;
            }
        }
        let text = gather::system(&agent, &mut memory).await;
        let told = match agent.trouble() {
            // It would make the host good again.
            Some(reason) => agent.send(Kind::System, false, &reason).await,
            None if surely => agent.send_surely(Kind::System, true, &text).await,
            None => agent.send(Kind::System, true, &text).await,
        };
        match told {
            Ok(()) => surely &= agent.trouble().is_some(),
            Err(_) => ticks.reset_after(agent.limits.resend.min(agent.config.periods.system)),
        }
    }
}

/// MONITOR_HOST.
pub async fn host(agent: Shared, mut before: Times) {
    let mut ticks = period(agent.config.periods.host);
    loop {
        ticks.tick().await;
        let text = gather::host(&agent, &mut before).await;
        let _ = agent.send(Kind::Host, true, &text).await;
    }
}

/// MONITOR_VM. It also sees when a state differs from what the state loop knows, as insurance against a lost event.
pub async fn vms(agent: Shared, mut memory: VmMemory) {
    let mut ticks = period(agent.config.periods.vm);
    loop {
        ticks.tick().await;
        let mut blocks = match vm::round(&agent, &mut memory).await {
            Ok(round) => {
                if differs(&agent, &round) {
                    agent.look_now.notify_one();
                }
                round.blocks
            }
            Err(reason) => {
                agent.fault(format!("no statistics of VMs: {reason}"));
                Vec::new()
            }
        };
        blocks.push(gather::disks(&agent, false).await);
        agent.send_blocks(Kind::Vm, blocks).await;
    }
}

fn differs(agent: &Shared, round: &vm::VmRound) -> bool {
    let kept = agent.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut active = std::collections::BTreeSet::new();
    for super::table::Sight { uuid, name, state: numbers } in &round.active {
        let Some(id) = state::vm_id(name) else { continue };
        active.insert(id);
        let seen = numbers.map(|(state, reason)| state::seen(state, reason));
        let known = kept
            .rows
            .get(&id)
            .filter(|row| row.uuid == *uuid && row.away.is_none())
            .and_then(|row| row.state);
        match seen {
            Some(state::Seen::Active(state) | state::Seen::Doubtful(state)) if known != Some(state) => {
                return true;
            }
            _ => {}
        }
    }
    let off = Some(state::VmState::Poweroff);
    kept.rows.iter().any(|(id, row)| {
        row.away.is_none() && row.state.is_some() && row.state != off && !active.contains(id)
    })
}

/// EXEC_VM.
pub async fn exec(agent: Shared) {
    let mut ticks = period(agent.config.periods.exec);
    loop {
        ticks.tick().await;
        let results = exec::collect(&agent.root, &agent.virsh, agent.limits.guest_timeout).await;
        let text = format!(
            "{}{}",
            results.text,
            agent.probes.run("vm/execution", |name, fault| agent.fault(format!("{name}: {fault}"))).await
        );
        if agent.send(Kind::Exec, true, &text).await.is_ok() {
            results.told();
        }
    }
}

/// Executables of the status folder (the states themselves come from the state loop).
pub async fn status_probes(agent: Shared) {
    let mut ticks = period(agent.config.periods.state);
    loop {
        ticks.tick().await;
        if agent.probes.list("vm/status", false).is_empty() {
            continue;
        }
        let text = agent.probes.run("vm/status", |name, fault| agent.fault(format!("{name}: {fault}"))).await;
        let _ = agent.send(Kind::State, true, &text).await;
    }
}

/// The snapshot group: each minute, as ever.
pub async fn snapshots(agent: Shared) {
    let mut ticks = period(Duration::from_secs(60));
    loop {
        ticks.tick().await;
        let text = gather::disks(&agent, true).await;
        let _ = agent.send(Kind::Vm, true, &text).await;
    }
}
