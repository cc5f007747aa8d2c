//! The listed directives, and what paths cannot do.

use super::*;

fn options<'a>(mesh: &'a MeshSlug, program: &'a Path) -> ServiceOptions<'a> {
    ServiceOptions {
        mesh,
        scope: ServiceScope::User,
        program,
        home: Path::new("/home/ada"),
        user: None,
        memory_max: MEMORY_MAX_DEFAULT,
    }
}

#[test]
fn cm_114_the_unit_has_the_listed_directives() {
    let mesh = MeshSlug::parse("team").unwrap();
    let options = options(&mesh, Path::new("/usr/local/bin/claudemesh"));
    let file = options.file(ServiceManager::Systemd).unwrap();
    let folder = Path::new("/home/ada/.config/systemd/user");
    assert_eq!(file.path, folder.join("claudemesh-daemon-team.service"));
    for directive in [
        "ExecStart=\"/usr/local/bin/claudemesh\" daemon up --mesh team --foreground",
        "Restart=on-failure",
        "RestartSec=5s",
        "StartLimitIntervalSec=5min",
        "StartLimitBurst=5",
        "MemoryMax=256000000",
        "TasksMax=128",
        "LimitNOFILE=4096",
        "StandardOutput=journal",
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "ProtectSystem=strict",
        "ProtectHome=read-only",
        "ReadWritePaths=\"/home/ada/.claudemesh\"",
        "WantedBy=default.target",
    ] {
        assert!(
            file.text.lines().any(|line| line == directive),
            "{directive}\n{}",
            file.text
        );
    }
    assert!(!file.text.contains("User="));
    assert_eq!(
        file.start[1],
        [
            "systemctl",
            "--user",
            "enable",
            "--now",
            "claudemesh-daemon-team.service"
        ]
    );
}

#[test]
fn a_system_service_has_a_user() {
    let mesh = MeshSlug::parse("team").unwrap();
    let mut options = options(&mesh, Path::new("/usr/bin/claudemesh"));
    options.scope = ServiceScope::System;
    assert_eq!(
        options.file(ServiceManager::Systemd),
        Err(ServiceError::NoUser)
    );
    options.user = Some("ada\nExecStartPre=/bin/false");
    assert_eq!(
        options.file(ServiceManager::Systemd),
        Err(ServiceError::NoUser)
    );
    options.user = Some("ada");
    let file = options.file(ServiceManager::Systemd).unwrap();
    assert!(file.path.starts_with("/etc/systemd/system"));
    assert!(file.text.contains("User=ada\n") && file.text.contains("WantedBy=multi-user.target"));
    assert_eq!(file.start[0], ["systemctl", "daemon-reload"]);
    let list = options.file(ServiceManager::Launchd).unwrap();
    assert!(list.path.starts_with("/Library/LaunchDaemons"));
    assert!(
        list.text
            .contains("<key>UserName</key>\n  <string>ada</string>")
    );
}

#[test]
fn a_path_is_taken_literally() {
    let mesh = MeshSlug::parse("team").unwrap();
    let strange = Path::new("/opt/a b/100%/$x/\"q\" & <c>");
    let unit = options(&mesh, strange)
        .file(ServiceManager::Systemd)
        .unwrap();
    assert!(
        unit.text
            .contains("ExecStart=\"/opt/a b/100%%/$$x/\\\"q\\\" & <c>\" daemon"),
        "{}",
        unit.text
    );
    let list = options(&mesh, strange)
        .file(ServiceManager::Launchd)
        .unwrap();
    assert!(
        list.text.contains("&amp; &lt;c&gt;</string>"),
        "{}",
        list.text
    );
    for path in ["claudemesh", "/opt/x\nUser=root"] {
        let refused = options(&mesh, Path::new(path)).file(ServiceManager::Systemd);
        assert!(matches!(refused, Err(ServiceError::Path(_))), "{path}");
    }
}

#[test]
fn cm_114_ci_refuses_a_service_without_the_flag() {
    let ci = HostEnvironment {
        is_ci: true,
        ..HostEnvironment::default()
    };
    let refused = check_environment(&ci, false).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Refusing to install persistent service in CI; ephemeral mode only."
    );
    assert_eq!(check_environment(&ci, true), Ok(()));
    assert_eq!(
        check_environment(&HostEnvironment::default(), false),
        Ok(())
    );
}
